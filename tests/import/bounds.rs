//! Inputs with many rules end soon: what an import writes does not grow with the product of rules, hosts and lists.

use std::fmt::Write;

use tollgate::import::{self, ImportError, Imported, InputFile, SourceFormat};

fn imported(text: String) -> Result<Imported, ImportError> {
    let source = InputFile {
        path: "haproxy.cfg".into(),
        text,
    };
    import::import(SourceFormat::Haproxy, &[source])
}

const HEAD: &str = "defaults\n mode http\nbackend app\n server s 127.0.0.1:3000\nfrontend f\n bind :80\n default_backend app\n";

fn size(imported: &Imported) -> usize {
    imported.files.iter().map(|file| file.text.len()).sum()
}

#[test]
fn many_lists_and_rules_stand_once() {
    let mut text = HEAD.to_owned();
    for list in 0..200 {
        let _ = write!(text, " acl l{list} src");
        for network in 0..200 {
            let _ = write!(text, " 10.{list}.{network}.0/24");
        }
        text.push('\n');
    }
    for rule in 0..200 {
        let _ = writeln!(text, " http-request deny if l{rule}");
        let _ = writeln!(text, " acl p{rule} path_beg /p{rule}/");
        let _ = writeln!(text, " http-request deny if p{rule} METH_POST");
    }
    let imported = imported(text).expect("an import");
    // Once in the gateway file, in the shortest form of each network.
    assert!(size(&imported) < 2_000_000, "{} bytes", size(&imported));
}

#[test]
fn many_different_lists_are_an_error() {
    let mut text = HEAD.to_owned();
    for list in 0..220 {
        let _ = write!(text, " acl l{list} src");
        for network in 0..250 {
            let _ = write!(text, " 10.{list}.{network}.0/24");
        }
        let _ = writeln!(
            text,
            "\n http-request deny if {{ path_beg /p{list}/ }} !l{list}"
        );
        let _ = writeln!(
            text,
            " http-request deny if {{ path_beg /q{list}/ }} !l{list} !l{}",
            list / 2
        );
    }
    let error = imported(text).expect_err("too many networks");
    assert!(error.to_string().contains("repeat networks"), "{error}");
}

#[test]
fn many_hosts_and_paths_end_soon() {
    let mut text = HEAD.to_owned();
    for number in 0..120 {
        let _ = writeln!(text, " acl h{number} hdr(host) -i h{number}.example");
        let _ = writeln!(text, " acl p{number} path_beg /p{number}/");
        let _ = writeln!(text, " http-request deny if h{number} p{number}");
    }
    // Either is a result; neither may take long.
    match imported(text) {
        Ok(imported) => assert!(size(&imported) < 5_000_000),
        Err(error) => assert!(error.to_string().contains("conditions"), "{error}"),
    }
    let mut text = HEAD.to_owned();
    for number in 0..900 {
        let _ = writeln!(
            text,
            " http-request deny if {{ hdr(host) h{number}.example }} {{ path_beg /p{number}/ }}"
        );
    }
    let error = imported(text).expect_err("too many combinations");
    assert!(error.to_string().contains("combinations"), "{error}");
}
