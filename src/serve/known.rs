//! What the last request of a connection said below its first line, and what was made of it: most clients
//! say the same each time, and then only the first line is looked at again. Nothing is remembered that depends on
//! more than these bytes, the version of HTTP, the connection, the route and the running policies.
//!
//! Bound: some four times [`MOST`] for each connection that was asked for something in the last second.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};

use bytes::Bytes;
use smallvec::SmallVec;

use super::generation::Generation;
use crate::head::Fields;
use crate::http1::Said;
use crate::identity::Who;
use crate::limit::Fingerprint;

/// Most bytes of fields that are remembered.
pub const MOST: usize = 4 * 1024;

/// See the module.
#[derive(Default)]
pub struct Last {
    /// The lines below the first one, the empty one too.
    lines: Vec<u8>,
    /// Made when they have come a second time.
    block: Option<Rc<Block>>,
}

/// Fields that were read.
pub struct Block {
    pub(super) fields: Fields,
    pub(super) said: Said,
    pub(super) asks: Asks,
    /// The request was of HTTP/1.1 or later.
    pub(super) newer: bool,
    /// One of them names the host, as it should.
    pub(super) hosted: Cell<bool>,
    /// The route that the last request took.
    route: Cell<Option<usize>>,
    served: RefCell<Option<Rc<Served>>>,
}

/// What a client asks for by fields.
#[derive(Clone, Debug, Default)]
pub struct Asks {
    /// To be told to go on before it sends the body.
    pub(super) expects: bool,
    /// For trailers.
    pub(super) trailers: bool,
    /// For this protocol.
    pub(super) upgrade: Option<Bytes>,
}

/// What a route made of them.
pub struct Served {
    generation: Weak<Generation>,
    route: usize,
    pub(super) who: Who,
    /// By the route's limits.
    pub(super) keys: SmallVec<[Option<Fingerprint>; 4]>,
    /// As they go to the upstream, when no limit has anything to say to it.
    pub(super) onward: OnceCell<Fields>,
}

impl Last {
    /// Where the lines begin again in `input`, if they do, and the fields as they were read.
    pub(super) fn again(&self, input: &[u8]) -> Option<(usize, &Rc<Block>)> {
        let block = self.block.as_ref()?;
        let start = memchr::memchr(b'\n', input)? + 1;
        let same = input[start..].starts_with(&self.lines);
        (same && input[..start].ends_with(b"\r\n")).then_some((start, block))
    }

    /// How many bytes the lines have.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Remembers lines; says whether it knows them already.
    pub(super) fn knows(&mut self, lines: &[u8]) -> bool {
        if self.lines == lines {
            return true;
        }
        self.block = None;
        self.lines.clear();
        if lines.len() <= MOST {
            self.lines.extend_from_slice(lines);
        }
        false
    }

    /// Remembers as what they were read.
    pub(super) fn learn(&mut self, fields: &Fields, said: Said, asks: &Asks, newer: bool) {
        self.block = Some(Rc::new(Block {
            fields: fields.gathered(),
            said,
            asks: asks.clone(),
            newer,
            hosted: Cell::new(false),
            route: Cell::new(None),
            served: RefCell::default(),
        }));
    }
}

impl Block {
    /// What the route made of them.
    pub(super) fn served(&self, by: &Rc<Generation>, route: usize) -> Option<Rc<Served>> {
        let served = self.served.borrow();
        let same = |served: &&Rc<Served>| {
            served.route == route && std::ptr::eq(served.generation.as_ptr(), Rc::as_ptr(by))
        };
        served.as_ref().filter(same).cloned()
    }

    /// Whether the last request took this route too, for what is made of them costs more than it saves once.
    pub(super) fn comes_again(&self, route: usize) -> bool {
        self.route.replace(Some(route)) == Some(route)
    }

    /// Remembers what a route made of them.
    pub(super) fn serve(&self, served: Served) -> Rc<Served> {
        let served = Rc::new(served);
        *self.served.borrow_mut() = Some(served.clone());
        served
    }
}

impl Served {
    /// Of a request that was not sent on yet.
    pub(super) fn new(
        by: &Rc<Generation>,
        route: usize,
        who: Who,
        keys: SmallVec<[Option<Fingerprint>; 4]>,
    ) -> Served {
        Served {
            generation: Rc::downgrade(by),
            route,
            who,
            keys,
            onward: OnceCell::new(),
        }
    }
}
