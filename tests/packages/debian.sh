# A Debian of its own, from a bare root that it leaves as it is, with systemd as its first process.
#
#   unshare --mount --pid --fork --uts --ipc --net --cgroup --mount-proc bash debian.sh ROOT FOLDER
#
# ROOT is what debootstrap made; FOLDER, which is empty but for packages, is in it at /packages.
set -euo pipefail
if [ $$ != 1 ]; then
	echo "to be the first process of namespaces of its own" >&2
	exit 1
fi
mount --make-rprivate /
ip link set lo up
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$1,upperdir=/mnt/upper,workdir=/mnt/work" /mnt/root
cd /mnt/root
mkdir packages
mount --bind "$2" packages
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
: >etc/machine-id
cat >etc/systemd/system/test.target <<-'UNIT'
	[Unit]
	Wants=dbus.socket systemd-journald.socket
UNIT
for unit in systemd-tmpfiles-setup systemd-tmpfiles-setup-dev systemd-sysusers systemd-udevd systemd-update-utmp; do
	ln -s /dev/null "etc/systemd/system/$unit.service"
done
pivot_root . mnt
umount --lazy mnt
export container=test
exec chroot . /lib/systemd/systemd --system --unit=test.target
