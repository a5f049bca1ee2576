# A system of its own around the units of packaging/systemd. It sees the files of this machine, but can change none.
#
#   unshare --mount --pid --fork --uts --ipc --net --cgroup --mount-proc bash systemd.sh FOLDER UNITS PROGRAM
#
# FOLDER has an empty folder `own`, and the gateway's configuration in `etc`; UNITS has the units; PROGRAM is the gateway.
set -euo pipefail
if [ $$ != 1 ]; then
	echo "to be the first process of namespaces of its own, for it replaces /etc/systemd" >&2
	exit 1
fi
units=$2 program=$3
mount --make-rprivate /
umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind "$1" /mnt
mount -t tmpfs tmpfs /mnt/own
for part in /etc /var /usr/local; do
	mkdir -p "/mnt/own/upper$part" "/mnt/own/work$part"
	mount -t overlay overlay -o "lowerdir=$part,upperdir=/mnt/own/upper$part,workdir=/mnt/own/work$part" "$part"
done
rm -rf /etc/systemd/system
mkdir -p /etc/systemd/system /usr/local/bin
cp "$units"/tollgate.service "$units"/tollgate.socket /etc/systemd/system/
cp -r /mnt/etc /etc/tollgate
touch /usr/local/bin/tollgate
mount --bind "$program" /usr/local/bin/tollgate
cat >/etc/systemd/system/upstream.service <<-'UNIT'
	[Service]
	ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory /usr/share/common-licenses 3000
UNIT
cat >/etc/systemd/system/test.target <<-'UNIT'
	[Unit]
	Wants=tollgate.socket tollgate.service upstream.service
UNIT
# What a machine does at its start, and this is none.
for unit in systemd-tmpfiles-setup systemd-tmpfiles-setup-dev systemd-sysusers systemd-udevd systemd-update-utmp; do
	ln -s /dev/null "/etc/systemd/system/$unit.service"
done
: >/etc/machine-id
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -o remount,bind,ro /
export container=test
exec /lib/systemd/systemd --system --unit=test.target
