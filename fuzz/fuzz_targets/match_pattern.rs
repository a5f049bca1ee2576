//! A pattern that is read prints and reads back, takes the path it is written as, and a mistake lies
//! inside the text.
#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use tollgate::route::pattern::Segment;
use tollgate::route::{HostPattern, Pattern, RouteMatch, RouteTable, normalise};

fuzz_target!(|text: &str| {
    match Pattern::parse(text) {
        Err(error) => assert!(text.is_char_boundary(error.offset)),
        Ok(pattern) => {
            assert_eq!(Pattern::parse(&pattern.to_string()).as_ref(), Ok(&pattern));
            let mut path = String::new();
            for segment in pattern.segments() {
                path.push('/');
                path.push_str(match segment {
                    Segment::Literal(text) => text,
                    Segment::One(_) => "x",
                    Segment::Rest => "x/y",
                });
            }
            let path = if path.is_empty() { "/" } else { &path };
            assert_eq!(normalise(path).as_deref(), Ok(path));
            let method = pattern
                .methods()
                .iter()
                .next()
                .cloned()
                .unwrap_or(Method::GET);
            let table = RouteTable::build([(0, &pattern)]).expect("one pattern has no conflict");
            assert_eq!(table.find(Some("h:1"), &method, path), RouteMatch::Route(0));
        }
    }
    match HostPattern::parse(text) {
        Err(error) => assert!(text.is_char_boundary(error.offset)),
        Ok(host) => assert_eq!(HostPattern::parse(&host.to_string()), Ok(host)),
    }
});
