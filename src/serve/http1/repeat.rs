//! What the last request of a connection said below its first line, and what was made of it: most clients
//! say the same each time, and then only the first line is looked at again, if it is another. But for a refusal that
//! stands nothing is remembered that depends on more than the head, the connection, the route and the running policies.
//!
//! Bound: some four times [`MOST`], the first lines of the last requests that were sent on and refused, and one refusal
//! and its answer, for each connection that was asked for something in the last second.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use bytes::Bytes;
use http::Version;

use crate::base::clock::Nanos;
use crate::http::head::{Fields, Head, Response};
use crate::http::http1::Said;
use crate::identity::Who;
use crate::limit::Standing;
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{PreparedDecision, Verdict};

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
    pub(crate) fields: Fields,
    pub(crate) said: Said,
    pub(crate) asks: Asks,
    /// The version of the request that they came in.
    pub(crate) version: Version,
    /// One of them names the host, as it should.
    pub(crate) hosted: Cell<bool>,
    /// The route that the last request took.
    route: Cell<Option<usize>>,
    served: RefCell<Option<Rc<Served>>>,
    asked: RefCell<Option<Asked>>,
    /// What the access log said of the last one that was refused.
    pub(crate) logged: RefCell<Option<Words>>,
}

/// The last request with these fields.
struct Asked {
    /// Its first line.
    line: Bytes,
    head: Rc<Head>,
    /// Its route.
    route: Option<(Weak<Generation>, usize)>,
}

/// What a client asks for by fields.
#[derive(Clone, Debug, Default)]
pub struct Asks {
    /// To be told to go on before it sends the body.
    pub(crate) expects: bool,
    /// For trailers.
    pub(crate) trailers: bool,
    /// For this protocol.
    pub(crate) upgrade: Option<Bytes>,
    /// To be answered as gRPC is.
    pub(crate) grpc: bool,
}

/// What a route made of them.
pub struct Served {
    generation: Weak<Generation>,
    route: usize,
    pub(crate) who: Rc<Who>,
    /// By the route's limits.
    pub(crate) prepared: PreparedDecision,
    refusal: RefCell<Option<Told>>,
    onward: RefCell<Option<Onward>>,
}

/// What clients were told of a refusal that stands, and until when it reads the same.
struct Told {
    answer: Rc<Response<Bytes>>,
    until: Nanos,
}

/// What the access log said of a refusal. Who asks is looked up once for each route and generation, so its place stands for both.
pub(crate) struct Words {
    pub(crate) head: Rc<Head>,
    pub(crate) who: Rc<Who>,
    /// Status, bytes, the limit that spoke, and whether without a shared store.
    pub(crate) told: (u16, u64, Option<(usize, Standing)>, bool),
    pub(crate) text: Box<[u8]>,
}

/// A head, and what it goes to the upstream as, when no limit has anything to say to it.
struct Onward {
    asked: Rc<Head>,
    sent: Rc<Head>,
}

impl Last {
    /// Where the lines begin again in `input`, if they do, and the fields as they were read.
    pub(crate) fn again(&self, input: &[u8]) -> Option<(usize, &Rc<Block>)> {
        let block = self.block.as_ref()?;
        let start = memchr::memchr(b'\n', input)? + 1;
        let same = input[start..].starts_with(&self.lines);
        (same && input[..start].ends_with(b"\r\n")).then_some((start, block))
    }

    /// Starts to load what limits will look at if the next request says the same.
    pub(crate) fn prefetch(&self) {
        let Some(block) = &self.block else { return };
        if let Some(served) = &*block.served.borrow() {
            served.prepared.prefetch();
        }
    }

    /// How many bytes the lines have.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Remembers lines; says whether it knows them already.
    pub(crate) fn knows(&mut self, lines: &[u8]) -> bool {
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
    pub(crate) fn learn(&mut self, fields: &Fields, said: Said, asks: &Asks, version: Version) {
        self.block = Some(Rc::new(Block {
            fields: fields.gathered(),
            said,
            asks: asks.clone(),
            version,
            hosted: Cell::new(false),
            route: Cell::new(None),
            served: RefCell::default(),
            asked: RefCell::default(),
            logged: RefCell::default(),
        }));
    }
}

impl Block {
    /// The head that begins with this line, if the last one did.
    pub(crate) fn asked(&self, line: &[u8]) -> Option<Rc<Head>> {
        let asked = self.asked.borrow();
        let same = asked.as_ref().filter(|asked| asked.line == line);
        same.map(|asked| asked.head.clone())
    }

    /// Remembers a head and the line that it begins with.
    pub(crate) fn ask(&self, line: Bytes, head: Rc<Head>) {
        let route = None;
        *self.asked.borrow_mut() = Some(Asked { line, head, route });
    }

    /// The route of the last request, if this is its head.
    pub(crate) fn route(&self, head: &Rc<Head>, by: &Rc<Generation>) -> Option<usize> {
        let asked = self.asked.borrow();
        let asked = asked.as_ref().filter(|asked| Rc::ptr_eq(&asked.head, head));
        let (known, route) = asked?.route.as_ref()?;
        std::ptr::eq(known.as_ptr(), Rc::as_ptr(by)).then_some(*route)
    }

    /// Remembers the route of a head.
    pub(crate) fn takes(&self, head: &Rc<Head>, by: &Rc<Generation>, route: usize) {
        let mut asked = self.asked.borrow_mut();
        if let Some(asked) = asked.as_mut().filter(|asked| Rc::ptr_eq(&asked.head, head)) {
            asked.route = Some((Rc::downgrade(by), route));
        }
    }

    /// What the route made of them.
    pub(crate) fn served(&self, by: &Rc<Generation>, route: usize) -> Option<Rc<Served>> {
        let served = self.served.borrow();
        let same = |served: &&Rc<Served>| {
            served.route == route && std::ptr::eq(served.generation.as_ptr(), Rc::as_ptr(by))
        };
        served.as_ref().filter(same).cloned()
    }

    /// Whether the last request took this route too, for what is made of them costs more than it saves once.
    pub(crate) fn comes_again(&self, route: usize) -> bool {
        self.route.replace(Some(route)) == Some(route)
    }

    /// Remembers what a route made of them.
    pub(crate) fn serve(&self, served: Served) -> Rc<Served> {
        let served = Rc::new(served);
        *self.served.borrow_mut() = Some(served.clone());
        served
    }
}

impl Served {
    /// What a request goes to the upstream as.
    pub(crate) fn onward(&self, asked: &Rc<Head>) -> Option<Rc<Head>> {
        let mut known = self.onward.borrow_mut();
        let known = known.as_mut()?;
        if !Rc::ptr_eq(&known.asked, asked) {
            let sent = Rc::new(Head {
                fields: known.sent.fields.clone(),
                ..asked.line()
            });
            *known = Onward {
                asked: asked.clone(),
                sent,
            };
        }
        Some(known.sent.clone())
    }

    /// Remembers what a request goes to the upstream as.
    pub(crate) fn goes(&self, asked: Rc<Head>, sent: Rc<Head>) {
        *self.onward.borrow_mut() = Some(Onward { asked, sent });
    }

    /// What to tell of a refusal, if it was told before.
    pub(crate) fn told(&self, verdict: &Verdict, now: Nanos) -> Option<Rc<Response<Bytes>>> {
        let mut told = self.refusal.borrow_mut();
        if !verdict.repeated {
            *told = None;
        }
        let told = told.as_ref().filter(|told| now < told.until);
        told.map(|told| told.answer.clone())
    }

    /// Remembers what is told of a refusal.
    pub(crate) fn tells(&self, answer: Rc<Response<Bytes>>, until: Nanos) {
        *self.refusal.borrow_mut() = Some(Told { answer, until });
    }

    /// Of a request that was not sent on yet.
    pub(crate) fn new(
        by: &Rc<Generation>,
        route: usize,
        who: Rc<Who>,
        prepared: PreparedDecision,
    ) -> Served {
        Served {
            generation: Rc::downgrade(by),
            route,
            who,
            prepared,
            refusal: RefCell::default(),
            onward: RefCell::default(),
        }
    }
}
