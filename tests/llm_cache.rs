//! The request cache under the client: nothing is asked twice, nothing paid is lost, caps stop cleanly.

#![cfg(feature = "llm")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod fault_server;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fault_server::{FaultServer, Play, TestClock, call, error, ok};
use livingrag::generate::Prices;
use livingrag::llm::{
    Cache, CacheKey, CacheMode, Call, Caps, ChatOutcome, Client, ClientSettings, Entry, Planned, Usage,
};

fn open(folder: &Path) -> Arc<Cache> {
    Arc::new(Cache::open(&folder.join("cache.sqlite")).unwrap())
}

fn client(cache: &Arc<Cache>, mode: CacheMode) -> Client {
    capped(cache, mode, Caps::default(), None)
}

fn capped(cache: &Arc<Cache>, mode: CacheMode, caps: Caps, price: Option<Prices>) -> Client {
    let settings =
        ClientSettings { caps, concurrency: 4, timeout: Duration::from_secs(5), ..ClientSettings::default() };
    Client::new(settings, None, Some((Arc::clone(cache), mode)), price).unwrap().with_clock(TestClock::default())
}

fn texts(outcomes: &[ChatOutcome]) -> Vec<&str> {
    outcomes.iter().map(|o| o.text.as_str()).collect()
}

/// An endpoint that never says the same twice.
fn counting() -> FaultServer {
    FaultServer::start(|seen| ok(&format!("answer {} of time {}", seen.question, seen.before)))
}

/// Pitfall 31: change only max_tokens.
#[test]
fn pitfall_31_another_request_is_asked_anew() {
    let (server, folder) = (counting(), tempfile::tempdir().unwrap());
    let cache = open(folder.path());
    let client = client(&cache, CacheMode::Use);
    let one = call(&server, 1);
    let mut longer = one.clone();
    longer.request.max_tokens += 1;
    let repeat = Call { attempt: 1, ..one.clone() };
    client.complete(&[one.clone(), longer.clone(), repeat.clone()]).unwrap();
    assert_eq!(server.seen().len(), 3);
    let again = client.complete(&[repeat, longer, one]).unwrap();
    assert_eq!(server.seen().len(), 3);
    assert!(again.iter().all(|o| o.cached));
}

#[test]
fn equal_calls_of_a_batch_are_asked_once() {
    let (server, folder) = (counting(), tempfile::tempdir().unwrap());
    let client = client(&open(folder.path()), CacheMode::Use);
    let calls = [call(&server, 1), call(&server, 2), call(&server, 1)];
    assert_eq!(
        client.plan(&calls).unwrap(),
        Planned { new_calls: 2, cached_calls: 1, prompt_tokens: 10, most_completion_tokens: 128 }
    );
    let outcomes = client.complete(&calls).unwrap();
    assert_eq!(texts(&outcomes), ["answer 1 of time 0", "answer 2 of time 0", "answer 1 of time 0"]);
    assert_eq!((server.seen().len(), client.ledger().shared), (2, 1));
    assert_eq!(client.plan(&calls).unwrap(), Planned { cached_calls: 3, ..Planned::default() });
}

#[test]
fn modes() {
    let (server, folder) = (counting(), tempfile::tempdir().unwrap());
    let cache = open(folder.path());
    let calls: Vec<_> = (1..=3).map(|n| call(&server, n)).collect();
    client(&cache, CacheMode::Use).complete(&calls[..2]).unwrap();

    let error = client(&cache, CacheMode::Only).complete(&calls).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    assert!(error.to_string().contains("\"q3\"") && error.to_string().contains("1 of 3 are missing"), "{error}");
    assert_eq!(client(&cache, CacheMode::Only).complete(&calls[..2]).unwrap().len(), 2);
    assert_eq!(server.seen().len(), 2, "the mode only asks nothing");

    let refreshed = client(&cache, CacheMode::Refresh).complete(&calls[..1]).unwrap();
    assert_eq!(texts(&refreshed), ["answer 1 of time 1"]);
    let used = client(&cache, CacheMode::Use).complete(&calls).unwrap();
    assert_eq!(texts(&used), ["answer 1 of time 1", "answer 2 of time 0", "answer 3 of time 0"]);
}

#[test]
fn an_export_answers_elsewhere() {
    let (server, folder) = (counting(), tempfile::tempdir().unwrap());
    let cache = open(folder.path());
    let calls: Vec<_> = (1..=3).map(|n| call(&server, n)).collect();
    let first = client(&cache, CacheMode::Use).complete(&calls).unwrap();
    let file = folder.path().join("answers.parquet");
    livingrag::llm::export(&cache, &file).unwrap();
    drop(server);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = open(elsewhere.path());
    livingrag::llm::import(&other, &file).unwrap();
    let second = client(&other, CacheMode::Only).complete(&calls).unwrap();
    assert_eq!(texts(&second), texts(&first));
}

#[test]
fn a_cap_on_calls_stops_cleanly_and_resumes() {
    let (server, folder) = (counting(), tempfile::tempdir().unwrap());
    let cache = open(folder.path());
    let calls: Vec<_> = (1..=20).map(|n| call(&server, n)).collect();
    let caps = Caps { calls: Some(7), usd: None };
    let error = capped(&cache, CacheMode::Use, caps, None).complete(&calls).unwrap_err();
    assert!(error.to_string().contains("7 calls"), "{error}");
    assert_eq!(server.seen().len(), 7);
    assert_eq!(cache.page(None, 99).unwrap().len(), 7);
    let outcomes = client(&cache, CacheMode::Use).complete(&calls).unwrap();
    assert_eq!(server.seen().len(), 20, "no answer is asked for twice");
    assert!(outcomes.iter().all(|o| o.text.ends_with("time 0")));
}

/// Each answer costs 20 + 5 tokens at 1,000 dollars a million, 0.025; a call may cost (6 + 64) tokens, 0.07.
#[test]
fn a_cap_on_dollars_is_never_passed() {
    let (server, folder) = (counting(), tempfile::tempdir().unwrap());
    let cache = open(folder.path());
    let price = Some(Prices { prompt: 1000.0, completion: 1000.0, cached: None });
    let caps = Caps { calls: None, usd: Some(0.2) };
    let calls: Vec<_> = (1..=20).map(|n| call(&server, n)).collect();
    let client = capped(&cache, CacheMode::Use, caps, price);
    let error = client.complete(&calls).unwrap_err();
    assert!(error.to_string().contains("cap of $0.2"), "{error}");
    // Six answers leave 0.05, which is too little for a seventh to be sure.
    assert_eq!(server.seen().len(), 6);
    assert!((client.ledger().usd - 0.15).abs() < 1e-9);
    let without_price = Client::new(ClientSettings { caps, ..ClientSettings::default() }, None, None, None);
    assert_eq!(without_price.err().unwrap().exit_code(), 2);
}

/// Ten thousand look-ups of answers with long bodies; prints how fast, asserts that each is right.
#[test]
fn ten_thousand_cached_answers() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let server = FaultServer::start(|_| error(500, vec![]));
    let calls: Vec<_> = (1..=10_000).map(|n| call(&server, n)).collect();
    let entries: Vec<_> = calls
        .iter()
        .map(|c| Entry {
            key: c.key(),
            base_url: c.request.base_url.clone(),
            model: c.request.model.clone(),
            attempt: 0,
            question: c.question.clone(),
            body: fault_server::completion(&format!("{} {}", c.question, "why ".repeat(500)), "stop"),
            usage: Usage::default(),
            elapsed_us: 1,
            tries: 1,
            created: 0,
            settings: "{}".into(),
        })
        .collect();
    assert_eq!(cache.add_all(&entries).unwrap(), 10_000);
    let client = client(&cache, CacheMode::Use);
    let start = Instant::now();
    let outcomes = client.complete(&calls).unwrap();
    println!("{:.0} cached answers a second", 10_000.0 / start.elapsed().as_secs_f64());
    assert!(outcomes.iter().zip(&calls).all(|(o, c)| o.cached && o.text.starts_with(&format!("{} why", c.question))));
    assert!(server.seen().is_empty());
}

/// Prints what the client adds to a call; run by hand: `cargo test --release --test llm_cache -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn overhead_of_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let server = FaultServer::start(|_| Play::After(Duration::from_millis(50), Box::new(ok("x"))));
    let settings = ClientSettings { concurrency: 16, ..ClientSettings::default() };
    let client = Client::new(settings, None, Some((open(folder.path()), CacheMode::Use)), None).unwrap();
    let calls: Vec<_> = (1..=1600).map(|n| call(&server, n)).collect();
    let start = Instant::now();
    client.complete(&calls).unwrap();
    let per_call = start.elapsed().as_secs_f64() * 1e3 / 1600.0;
    println!("{per_call:.3} ms a call, of which the client's {:.3} ms", per_call - 50.0 / 16.0);
}

const CHILD: &str = "LIVINGRAG_TEST_KILLED_CHILD";
const CHILD_CALLS: usize = 400;

/// The part that gets killed; does nothing on its own.
#[test]
fn killed_child() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (url, path) = arguments.split_once('|').unwrap();
    let cache = Arc::new(Cache::open(Path::new(path)).unwrap());
    let calls: Vec<_> = child_calls(url);
    client(&cache, CacheMode::Use).complete(&calls).unwrap();
}

fn child_calls(url: &str) -> Vec<Call> {
    let server = counting();
    (1..=CHILD_CALLS)
        .map(|n| {
            let mut call = call(&server, n);
            call.request.base_url = url.to_owned();
            call
        })
        .collect()
}

/// kill -9 at many moments: every answer that was kept stays, is not asked for again, and the outcomes are those of an unbroken
/// run.
#[test]
fn a_killed_client_loses_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.sqlite");
    let server = FaultServer::start(|seen| {
        if seen.question.is_multiple_of(10) && seen.before == 0 {
            return error(429, vec![("Retry-After", "1".into())]);
        }
        Play::After(Duration::from_millis(8), Box::new(ok(&format!("answer {}", seen.question))))
    });
    let calls = child_calls(&server.base_url());
    let keys: Vec<CacheKey> = calls.iter().map(Call::key).collect();
    let mut kept: Vec<Entry> = Vec::new();
    let mut unfinished = 0;
    for moment in 0..20_u64 {
        let times_before: Vec<_> = (1..=CHILD_CALLS).map(|n| server.times(n)).collect();
        let arrived = server.arrived();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_child", "--quiet"])
            .env(CHILD, format!("{}|{}", server.base_url(), path.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while server.arrived() == arrived && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis((moment * 37) % 50));
        child.kill().unwrap();
        unfinished += usize::from(!child.wait().unwrap().success());
        let cache = Cache::open(&path).unwrap();
        for entry in &kept {
            assert_eq!(cache.get(&entry.key).unwrap().as_ref(), Some(entry), "an answer was lost");
            let n = keys.iter().position(|k| *k == entry.key).unwrap() + 1;
            assert_eq!(server.times(n), times_before[n - 1], "question {n} was kept and asked again");
        }
        kept = cache.page(None, 999).unwrap();
    }
    let cache = Arc::new(Cache::open(&path).unwrap());
    let outcomes = client(&cache, CacheMode::Use).complete(&calls).unwrap();
    let expected: Vec<_> = (1..=CHILD_CALLS).map(|n| format!("answer {n}")).collect();
    assert_eq!(texts(&outcomes), expected);
    println!("{unfinished} of 20 were killed at work, {} answers were kept", kept.len());
    assert!(unfinished >= 10 && !kept.is_empty());
}
