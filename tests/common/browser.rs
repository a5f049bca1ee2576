//! A real browser: Chromium without a window, driven through chromedriver (W3C WebDriver).

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use super::{Client, wait_until};

/// The key under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A window of a browser of its own.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

/// Starts chromedriver, and returns its port; `None` if it has ended instead.
fn start_driver() -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Chromium joins the group, and ends with it.
        .process_group(0)
        .spawn()
        .expect("chromedriver: make tools");
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    let Some(port) = port else {
        driver.wait().unwrap();
        return None;
    };
    // What it says later must have somewhere to go.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

impl Browser {
    /// Opens one of this size.
    pub fn open(width: u32, height: u32) -> Browser {
        // It ends if another process has its port of IPv4 under IPv6.
        let started = (0..10).find_map(|_| start_driver());
        let (driver, port) = started.expect("chromedriver starts");
        let mut browser = Browser {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
        };
        let arguments = [
            String::from("--headless=new"),
            String::from("--no-sandbox"),
            String::from("--disable-gpu"),
            String::from("--disable-dev-shm-usage"),
            String::from("--hide-scrollbars"),
            format!("--window-size={width},{height}"),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.command("POST", "/session", &wanted);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut client = Client::connect(self.address);
        let body = if method == "GET" || method == "DELETE" {
            String::new()
        } else {
            body.to_string()
        };
        let length = body.len();
        let address = self.address;
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        ));
        let answer = client.answer();
        let text: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer.status(), 200, "{method} {path} {body}: {text:#}");
        text["value"].clone()
    }

    fn of_session(&self, method: &str, path: &str, body: &Value) -> Value {
        self.command(method, &format!("/session/{}{path}", self.session), body)
    }

    pub fn go(&self, address: &str) {
        self.of_session("POST", "/url", &json!({ "url": address }));
    }

    /// What a script returns.
    pub fn script(&self, script: &str) -> Value {
        self.of_session(
            "POST",
            "/execute/sync",
            &json!({ "script": script, "args": [] }),
        )
    }

    /// What a script gives to its last argument.
    pub fn script_later(&self, script: &str) -> Value {
        self.of_session(
            "POST",
            "/execute/async",
            &json!({ "script": script, "args": [] }),
        )
    }

    /// All text that can be seen of an element.
    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({selector:?})?.innerText ?? ''");
        self.script(&script).as_str().unwrap().to_owned()
    }

    /// Clicks on an element as a person would.
    pub fn click(&self, selector: &str) {
        wait_until(&format!("there is {selector}"), || {
            let script = format!(
                "const found = document.querySelector({selector:?});\
                 return !!found && found.checkVisibility()"
            );
            self.script(&script) == json!(true)
        });
        let wanted = json!({ "using": "css selector", "value": selector });
        let element = self.of_session("POST", "/element", &wanted);
        let element = element[ELEMENT].as_str().unwrap();
        self.of_session("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Presses a key.
    pub fn press(&self, key: &str) {
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": [
            { "type": "keyDown", "value": key },
            { "type": "keyUp", "value": key },
        ] }] });
        self.of_session("POST", "/actions", &actions);
    }

    /// What was written to the console, without what only informs.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.of_session("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().unwrap().iter();
        let bad =
            entries.filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")));
        bad.map(|entry| entry["message"].to_string()).collect()
    }

    /// The window as PNG.
    pub fn picture(&self) -> Vec<u8> {
        let picture = self.of_session("GET", "/screenshot", &Value::Null);
        STANDARD.decode(picture.as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            let mut client = Client::connect(self.address);
            client.send(format!("DELETE {path} HTTP/1.1\r\nhost: t\r\n\r\n"));
            let _ = client.head();
        }
        let _ = kill_process_group(Pid::from_child(&self.driver), Signal::KILL);
        let _ = self.driver.wait();
    }
}
