//! A chat endpoint on this machine that misbehaves as told.
//!
//! In: a script, from a request and how often the same one came before to what is played. Out: what arrived. Plain sockets on
//! 127.0.0.1, one thread a connection, bounded in number, size and time; it ends with its owner.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "every test binary uses its own part")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use livingrag::llm::{Call, ChatRequest, Clock, Message};
use serde_json::json;

const MOST_CONNECTIONS: usize = 20_000;
const MOST_BYTES: usize = 4 << 20;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Start line and headers.
    pub head: String,
    /// Body.
    pub body: String,
    /// Number behind the word `question` in the body; 0 without one.
    pub question: usize,
    /// How often the same body came before.
    pub before: usize,
}

/// What the server does with a request.
pub enum Play {
    /// A whole reply.
    Reply(u16, Vec<(&'static str, String)>, String),
    /// A reply whose connection closes after half of the announced body.
    Cut(String),
    /// Nothing but the end of the connection.
    HangUp,
    /// A pause, then something else.
    After(Duration, Box<Play>),
}

/// The server.
pub struct FaultServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<dyn Fn(&Seen) -> Play + Send + Sync>,
    seen: Mutex<Vec<Seen>>,
    counts: Mutex<BTreeMap<String, usize>>,
    open: AtomicUsize,
    most_open: AtomicUsize,
    stopped: AtomicBool,
}

impl FaultServer {
    pub fn start(script: impl Fn(&Seen) -> Play + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Mutex::default(),
            counts: Mutex::default(),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let server = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().take(MOST_CONNECTIONS) {
                if server.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let server = Arc::clone(&server);
                std::thread::spawn(move || {
                    let open = server.open.fetch_add(1, Ordering::SeqCst) + 1;
                    server.most_open.fetch_max(open, Ordering::SeqCst);
                    // A client that was killed or timed out is part of the play.
                    let _ = server.serve(stream);
                });
            }
        });
        Self { address, shared }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Everything that arrived so far, in order of arrival.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How often a question arrived.
    pub fn times(&self, question: usize) -> usize {
        self.shared.seen.lock().unwrap().iter().filter(|s| s.question == question).count()
    }

    /// How much arrived so far.
    pub fn arrived(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }

    /// Most connections that were served at a time.
    pub fn most_open(&self) -> usize {
        self.shared.most_open.load(Ordering::SeqCst)
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        let request = read_request(&mut stream);
        let play = request.map(|(head, body)| {
            let question = body
                .split("question ")
                .nth(1)
                .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>())
                .and_then(|digits| digits.parse().ok())
                .unwrap_or(0);
            let mut counts = self.counts.lock().unwrap();
            let count = counts.entry(body.clone()).or_default();
            let seen = Seen { head, body, question, before: *count };
            *count += 1;
            drop(counts);
            self.seen.lock().unwrap().push(seen.clone());
            (self.script)(&seen)
        });
        // A call is over for the client no earlier than its reply is written.
        match play {
            Ok(play) => self.act(play, &mut stream),
            Err(e) => {
                self.open.fetch_sub(1, Ordering::SeqCst);
                Err(e)
            }
        }
    }

    fn act(&self, play: Play, stream: &mut TcpStream) -> std::io::Result<()> {
        if let Play::After(pause, then) = play {
            std::thread::sleep(pause);
            return self.act(*then, stream);
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
        let head =
            |status, length| format!("HTTP/1.1 {status} Played\r\nConnection: close\r\nContent-Length: {length}\r\n");
        match play {
            Play::Reply(status, headers, body) => {
                let mut text = head(status, body.len());
                for (name, value) in headers {
                    text.push_str(&format!("{name}: {value}\r\n"));
                }
                stream.write_all(format!("{text}\r\n{body}").as_bytes())
            }
            Play::Cut(body) => {
                let text = format!("{}\r\n{}", head(200, body.len()), &body[..body.len() / 2]);
                stream.write_all(text.as_bytes())
            }
            Play::HangUp | Play::After(..) => Ok(()),
        }
    }
}

fn read_request(stream: &mut TcpStream) -> std::io::Result<(String, String)> {
    let broken = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let (mut bytes, mut chunk) = (Vec::new(), [0; 16_384]);
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .and_then(|(_, value)| value.trim().parse::<usize>().ok())
                .filter(|length| *length <= MOST_BYTES)
                .ok_or_else(broken)?;
            if bytes.len() >= end + 4 + length {
                return Ok((head, String::from_utf8_lossy(&bytes[end + 4..end + 4 + length]).into_owned()));
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err(broken()),
            n => bytes.extend_from_slice(&chunk[..n]),
        }
    }
}

/// A completion with token counts.
pub fn completion(text: &str, finish: &str) -> String {
    let choices = json!([{"message": {"role": "assistant", "content": text}, "finish_reason": finish}]);
    json!({"choices": choices, "usage": {"prompt_tokens": 20, "completion_tokens": 5}}).to_string()
}

/// A success.
pub fn ok(text: &str) -> Play {
    Play::Reply(200, vec![], completion(text, "stop"))
}

/// An error with a message.
pub fn error(status: u16, headers: Vec<(&'static str, String)>) -> Play {
    Play::Reply(status, headers, json!({"error": {"message": format!("played {status}")}}).to_string())
}

/// A call that asks a question by number.
pub fn call(server: &FaultServer, question: usize) -> Call {
    let messages = vec![Message::system("Answer."), Message::user(format!("question {question}?"))];
    let request = ChatRequest::new(&server.base_url(), "test-model", messages, 64);
    Call { question: format!("q{question}"), attempt: 0, request }
}

/// Moments before the year 2031, for tests of HTTP dates.
pub const FIVE_SECONDS_BEFORE_2031: i64 = 1_924_992_000 - 5;

/// A clock that does not wait: a pause moves it on and is noted.
#[derive(Debug, Clone, Default)]
pub struct TestClock {
    passed_us: Arc<AtomicU64>,
    pauses: Arc<Mutex<Vec<Duration>>>,
}

impl TestClock {
    /// Every pause so far.
    pub fn pauses(&self) -> Vec<Duration> {
        self.pauses.lock().unwrap().clone()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.passed_us.load(Ordering::SeqCst))
    }

    fn unix_seconds(&self) -> i64 {
        FIVE_SECONDS_BEFORE_2031
    }

    fn sleep(&self, pause: Duration) {
        self.passed_us.fetch_add(u64::try_from(pause.as_micros()).unwrap(), Ordering::SeqCst);
        self.pauses.lock().unwrap().push(pause);
    }
}
