//! Applications below a path of the gateway, and a browser that clicks through them without a broken link. One knows its
//! prefix by a setting, one by a header, and one not at all.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::application::{Application, python, script};
use crate::common::browser::Browser;
use crate::common::{Gateway, wait_until};

/// The most links of one page that are followed.
const MAX_LINKS: usize = 60;

/// A folder with a database of 250 items in three colours.
fn shop() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script = "import sqlite3\n\
        shop = sqlite3.connect('shop.db')\n\
        shop.execute('create table items (id integer primary key, name text, colour text)')\n\
        items = [(f'item {n}', ['red', 'green', 'blue'][n % 3]) for n in range(250)]\n\
        shop.executemany('insert into items (name, colour) values (?, ?)', items)\n\
        shop.commit()\n";
    let ended = crate::common::child::finish(&mut python(folder.path(), &["-c", script]));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    folder
}

/// A browser on the pages of an application below `/data`.
struct Visit {
    browser: Browser,
    gateway: Gateway,
}

impl Visit {
    fn start(app: &Application, policy: &str) -> Visit {
        let policy = format!("match: /data/**\nupstream: up\nstrip: /data\n{policy}");
        Visit {
            browser: Browser::open(1200, 900),
            gateway: Gateway::start(app.address, "", &[("data", &policy)]),
        }
    }

    /// Goes to a path as by the address bar.
    fn go(&self, path: &str) {
        self.browser
            .go(&format!("http://{}{path}", self.gateway.address));
        self.check_page();
    }

    /// Clicks on an element that leads to another page.
    fn click(&self, selector: &str) {
        self.browser.script("window.isLeft = true");
        self.browser.click(selector);
        wait_until("another page is loaded", || {
            let script = "return !window.isLeft && document.readyState === 'complete'";
            self.browser.script(script) == json!(true)
        });
        self.check_page();
    }

    /// Where the browser is, without the host.
    fn place(&self) -> String {
        let place = self
            .browser
            .script("return location.pathname + location.search");
        place.as_str().unwrap().to_owned()
    }

    fn shows(&self, text: &str) {
        let body = self.browser.text("body");
        assert!(body.contains(text), "{text} at {}: {body}", self.place());
    }

    /// Checks that the page is there, below the prefix, and so is each page and file to which it links.
    fn check_page(&self) {
        assert!(self.place().starts_with("/data/") || self.place() == "/data");
        let script = format!(
            "const done = arguments[arguments.length - 1];\
             const links = [...document.querySelectorAll('[href], [src], form[action]:not([method=post i])')]\
                 .map((element) => element.href?.baseVal ?? element.href ?? element.src ?? element.action)\
                 .concat(performance.getEntriesByType('resource').map((entry) => entry.name))\
                 .filter((link) => typeof link === 'string' && link.startsWith(location.origin))\
                 .map((link) => link.split('#')[0])\
                 .filter((link) => link !== location.origin + '/favicon.ico');\
             const broken = async (link) => {{\
                 const response = await fetch(link, {{ method: 'GET' }});\
                 const isBelow = new URL(response.url).pathname.startsWith('/data');\
                 return response.status < 400 && isBelow ? [] : [response.status + ' ' + response.url];\
             }};\
             const page = performance.getEntriesByType('navigation')[0];\
             const first = page.responseStatus < 400 ? [] : [page.responseStatus + ' ' + page.name];\
             Promise.all([...new Set(links)].slice(0, {MAX_LINKS}).map(broken))\
                 .then((found) => done(first.concat(found.flat())), (error) => done(String(error)));"
        );
        let broken = self.browser.script_later(&script);
        assert_eq!(broken, Value::Array(vec![]), "at {}", self.place());
    }
}

/// Datasette makes the links of its pages by its `base_url`, but some of its redirects without it.
#[test]
fn datasette_knows_its_prefix_by_a_setting() {
    let folder = shop();
    let arguments =
        "-m datasette serve shop.db --host 127.0.0.1 --port 0 --setting base_url /data/";
    let arguments: Vec<_> = arguments.split(' ').collect();
    let app = Application::start(&mut python(folder.path(), &arguments));
    let visit = Visit::start(&app, "map_back: true\n");
    visit.go("/data/");
    visit.click("a[href='/data/shop']");
    visit.click("a[href='/data/shop/items']");
    visit.shows("250 rows");
    visit.click("th a[href*='_sort=name']");
    assert_eq!(visit.place(), "/data/shop/items?_sort=name");
    visit.click("a[href*='_next=']");
    visit.click("a[href='/data/shop']");
    visit.click("a[href='/data/shop/items']");
    visit.click("a[href*='_facet=colour']");
    visit.click("a[href*='colour=green']");
    visit.shows("where colour = \"green\"");
    let fill = "const [column, value] = ['_filter_column', '_filter_value']\
                    .map((name) => [...document.getElementsByName(name)].at(-1) ??\
                        [...document.querySelectorAll(`[name^=${name}]`)].at(-1));\
                column.value = 'name'; value.value = 'item 7'; return !!column";
    assert_eq!(visit.browser.script(fill), json!(true));
    visit.click("form.filters input[type=submit]");
    visit.shows("item 7");
    visit.click("td a[href$='/items/8']");
    visit.shows("item 7");
    visit.click("a[href='/data/shop']");
    visit.click("form.sql input[type=submit]");
    visit.shows("item 7");
    // A redirect that does not know the prefix.
    visit.go("/data/shop/items/");
    assert_eq!(visit.place(), "/data/shop/items");
}

/// sqlite-web learns the prefix of each request by `X-Forwarded-Prefix`, so that nothing has to be mapped back.
#[test]
fn sqlite_web_knows_its_prefix_by_a_header() {
    let folder = shop();
    let file = folder.path().join("shop.db");
    let arguments = [&script("sqlite_web_app.py"), file.to_str().unwrap()];
    let app = Application::start(&mut python(folder.path(), &arguments));
    let visit = Visit::start(&app, "request: { set: { x-forwarded-prefix: /data } }\n");
    visit.go("/data/");
    visit.click("a[href='/data/items/']");
    visit.shows("colour");
    visit.click("a[href='/data/items/content/']");
    visit.shows("item 7");
    visit.click("a[href='/data/items/content/?ordering=2']");
    visit.click("a[href*='page=2']");
    visit.click("a[href^='/data/items/row/']");
    visit.click("a[href='/data/items/query/']");
    visit.click("#query-form button[type=submit]");
    visit.shows("item 7");
}

/// Python's server of files knows no prefix. Its links are relative, and its redirects are mapped back.
#[test]
fn http_server_knows_no_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(file, text).unwrap();
    };
    put("read.txt", "read this");
    put("books/tea/leaf.txt", "a leaf");
    let arguments = ["-m", "http.server", "0", "--bind", "127.0.0.1"];
    let app = Application::start(&mut python(folder.path(), &arguments));
    let visit = Visit::start(&app, "map_back: true\n");
    visit.go("/data/");
    visit.click("a[href='books/']");
    visit.click("a[href='tea/']");
    visit.click("a[href='leaf.txt']");
    visit.shows("a leaf");
    // A folder without a slash is redirected.
    visit.go("/data/books/tea");
    assert_eq!(visit.place(), "/data/books/tea/");
}
