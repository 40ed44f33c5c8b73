//! Debian's Chromium without a window, driven by its `DevTools` protocol over two named pipes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::supervisor::{Process, Supervisor, Tool};

/// Chromium starts in two seconds on an idle machine.
const WITHIN: Duration = Duration::from_secs(60);

/// A browser with one page. It ends when it is dropped.
#[derive(Debug)]
pub struct Browser {
    process: Process,
    requests: File,
    messages: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// The events so far.
    pub events: Vec<Value>,
}

impl Browser {
    /// Starts the browser. `directory` is empty and gets its profile.
    pub fn open(supervisor: &Supervisor, directory: &Path) -> Result<Self> {
        let pipes = Tool::new("mkfifo", "mkfifo").arguments(["requests", "messages"]).directory(directory);
        supervisor.run(pipes, WITHIN)?.succeeded()?;
        // Root has no sandbox.
        let script = "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking \
                      --remote-debugging-pipe --user-data-dir=profile about:blank 3<requests 4>messages";
        let tool = Tool::new("chromium", "bash").arguments(["-c", script]).directory(directory);
        let process = supervisor.start_process(tool)?;
        // A pipe that is opened for both never blocks.
        let open = |name: &str| {
            let path = directory.join(name);
            File::options().read(true).write(true).open(&path).with_context(|| format!("cannot open {name}"))
        };
        let (requests, mut reader) = (open("requests")?, BufReader::new(open("messages")?));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while reader.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                let text = message.strip_suffix(&[0]).unwrap_or(&message);
                let Ok(value) = serde_json::from_slice(text) else { break };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let mut browser = Self { process, requests, messages, session: None, number: 0, events: Vec::new() };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Log", "Runtime"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.number += 1;
        let mut request = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.requests.write_all(format!("{request}\0").as_bytes())?;
        let end = Instant::now() + WITHIN;
        loop {
            let message = self.message(end, method)?;
            if message["id"] != self.number {
                self.events.push(message);
            } else if message["error"].is_null() {
                return Ok(message["result"].clone());
            } else {
                bail!("{method}: {}", message["error"]);
            }
        }
    }

    /// Opens a page and waits until it is complete.
    pub fn go(&mut self, url: &str) -> Result<()> {
        let before = self.events.len();
        let found = self.call("Page.navigate", &json!({"url": url}))?;
        if let Some(error) = found["errorText"].as_str() {
            bail!("{url}: {error}");
        }
        let end = Instant::now() + WITHIN;
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().skip(before).any(is_loaded) {
            let message = self.message(end, url)?;
            self.events.push(message);
        }
        Ok(())
    }

    /// Evaluates an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let found =
            self.call("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true}))?;
        Ok(found["result"]["value"].clone())
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str, code: u32) -> Result<()> {
        for kind in ["rawKeyDown", "char", "keyUp"] {
            let text = if kind == "char" && key == "Enter" { "\r" } else { "" };
            if kind == "char" && text.is_empty() {
                continue;
            }
            let event =
                json!({"type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", &event)?;
        }
        Ok(())
    }

    fn message(&self, end: Instant, what: &str) -> Result<Value> {
        let left = end.saturating_duration_since(Instant::now());
        let message = self.messages.recv_timeout(left);
        message.map_err(|_| self.process.failure(format_args!("{what}: no answer within {WITHIN:?}")))
    }
}
