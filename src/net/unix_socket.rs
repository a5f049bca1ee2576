//! Listening Unix sockets and their files: creates sockets, replaces files that an earlier process left behind, and
//! removes files at the end. A file that is no socket stays as it is.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use socket2::{Domain, SockAddr, Socket, Type};

/// Listens at `path`, with a queue of `backlog` connections. The permissions of the file, `mode`, decide who may connect.
/// The file of a socket on which no process listens any more is replaced.
///
/// # Errors
///
/// Fails if another process listens there or another file is there. Also fails if the folder is missing or not
/// writable, or if the path is too long. If only the permissions or the queue cannot be set, the new file stays.
pub fn bind(path: &Path, mode: u32, backlog: i32) -> io::Result<Socket> {
    let socket = new_socket()?;
    let address = SockAddr::unix(path)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            check_unused(path)?;
            fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let message =
                "its folder does not exist; make it, for instance by `RuntimeDirectory=` of a unit";
            return Err(io::Error::new(error.kind(), message));
        }
        bound => bound?,
    }
    // The permissions are set first, while no process can connect yet.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// Verifies that `path` is free: nothing is there, or a socket on which no process listens. A process that listens sees
/// a connection that ends at once.
///
/// # Errors
///
/// Fails if a process listens there, if the file is no socket, or if that cannot be determined.
pub fn check_unused(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => {
            let message = "another file stands there, which is no socket";
            return Err(io::Error::new(ErrorKind::AlreadyExists, message));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match try_connect(path) {
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => Ok(()),
            // The queue of a process that listens is full.
            ErrorKind::WouldBlock => Err(ErrorKind::AddrInUse.into()),
            _ => Err(error),
        },
        Ok(()) => Err(ErrorKind::AddrInUse.into()),
    }
}

/// Connects to `path` and closes the connection at once.
///
/// # Errors
///
/// Fails if no process listens, and with [`ErrorKind::WouldBlock`] if the queue is full.
pub fn try_connect(path: &Path) -> io::Result<()> {
    new_socket()?.connect(&SockAddr::unix(path)?)
}

/// Makes a stream socket that does not block.
fn new_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The file of a listening socket. It stays until [`SocketFile::remove`] is called.
#[derive(Debug)]
pub struct SocketFile {
    /// The path of the file.
    pub path: Arc<Path>,
    /// The number of the file's device. With `inode` it tells whether another file has replaced this one at its path.
    device: u64,
    /// The number of the file on its device.
    inode: u64,
}

impl SocketFile {
    /// Returns the file that is at `path` now.
    ///
    /// # Errors
    ///
    /// Fails if there is no file, or if its metadata cannot be read.
    pub fn at(path: &Arc<Path>) -> io::Result<SocketFile> {
        let metadata = path.symlink_metadata()?;
        Ok(SocketFile {
            path: path.clone(),
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// Removes the file, unless another one has replaced it. A failure is logged.
    pub fn remove(self) {
        let current_file = SocketFile::at(&self.path);
        let is_same_file =
            |current: SocketFile| (current.device, current.inode) == (self.device, self.inode);
        if current_file.is_ok_and(is_same_file)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the file of a socket");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn the_file_of_a_socket_is_replaced_only_where_nobody_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<Path> = folder.path().join("a.sock").into();
        // One that was left behind.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists() && check_unused(&path).is_ok());
        let socket = bind(&path, 0o600, 8).unwrap();
        let mode = path.metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        for used in [check_unused(&path), bind(&path, 0o600, 8).map(drop)] {
            assert_eq!(used.unwrap_err().kind(), ErrorKind::AddrInUse);
        }
        let file = SocketFile::at(&path).unwrap();
        drop(socket);
        file.remove();
        assert!(!path.exists());
    }

    #[test]
    fn a_full_queue_is_one_that_somebody_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let _socket = bind(&path, 0o600, 0).unwrap();
        let waits: Vec<_> = std::iter::from_fn(|| {
            let socket = new_socket().unwrap();
            let connected = socket.connect(&SockAddr::unix(&path).unwrap());
            connected.is_ok().then_some(socket)
        })
        .collect();
        assert!(!waits.is_empty());
        assert_eq!(
            check_unused(&path).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
    }

    #[test]
    fn other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<Path> = folder.path().join("a.sock").into();
        let ours = bind(&path, 0o600, 8).unwrap();
        let file = SocketFile::at(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // The inode of a file that is gone may be given to the next.
        fs::write(folder.path().join("between"), "").unwrap();
        fs::write(&path, "text").unwrap();
        file.remove();
        drop(ours);
        assert_eq!(fs::read(&path).unwrap(), b"text");
        let error = bind(&path, 0o600, 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }
}
