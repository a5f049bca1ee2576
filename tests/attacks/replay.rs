//! A hostile upstream: to `/case` it says what the test tells it to, to anything else what was asked.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::case::Cut;
use crate::common::Gate;
use crate::strict::{self, Stop};

/// What it does after it has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Goes on with the next request.
    Stay,
    /// Closes the connection.
    Close,
    /// Closes its sending side and reads on.
    HalfClose,
    /// Resets the connection when it is let.
    Reset,
    /// Says its last byte again every 20 ms.
    Trickle,
}

#[derive(Clone)]
pub struct Script {
    pub answer: Vec<u8>,
    pub then: Then,
    pub cut: Cut,
    /// What was said is to be read before a reset destroys it.
    pub reset: Gate,
}

impl Script {
    pub fn new(answer: impl Into<Vec<u8>>, then: Then, cut: Cut) -> Script {
        Script {
            answer: answer.into(),
            then,
            cut,
            reset: Gate::default(),
        }
    }
}

/// See the module.
pub struct Replay {
    pub address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl Replay {
    pub fn start() -> Replay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(Script::new("", Then::Stay, Cut::Whole)));
        let shared = script.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let script = shared.clone();
                thread::spawn(move || serve(stream, &script));
            }
        });
        Replay { address, script }
    }

    pub fn say(&self, script: Script) {
        *self.script.lock().unwrap() = script;
    }

    /// Lets it reset the connection.
    pub fn release(&self) {
        self.script.lock().unwrap().reset.open();
    }
}

fn serve(mut stream: TcpStream, script: &Mutex<Script>) {
    stream.set_nodelay(true).unwrap();
    let (mut input, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match strict::request(&input) {
            Ok(message) => {
                input.drain(..message.length);
                let deed = message.deed();
                if deed.contains(" /case [") {
                    let script = script.lock().unwrap().clone();
                    if !play(&mut stream, &script) {
                        return;
                    }
                } else {
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{deed}",
                        deed.len()
                    );
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
            Err(Stop::Unclean(why)) => panic!("to the server: {why}"),
            Err(Stop::More) => match stream.read(&mut piece) {
                Ok(read @ 1..) => input.extend_from_slice(&piece[..read]),
                _ => return,
            },
        }
    }
}

/// Says whether the connection goes on.
fn play(stream: &mut TcpStream, script: &Script) -> bool {
    script.cut.send(stream, &script.answer);
    match script.then {
        Then::Stay => return true,
        Then::Close => {}
        Then::HalfClose => {
            let _ = stream.shutdown(Shutdown::Write);
            let _ = std::io::copy(stream, &mut std::io::sink());
        }
        Then::Reset => {
            script.reset.pass();
            socket2::SockRef::from(&*stream)
                .set_linger(Some(std::time::Duration::ZERO))
                .unwrap();
        }
        Then::Trickle => {
            let last = script.answer.last().copied().unwrap_or(b'x');
            while stream.write_all(&[last]).is_ok() {
                thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
    false
}
