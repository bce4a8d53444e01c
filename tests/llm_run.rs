//! Whole runs of the program against an endpoint that fails: nothing is lost, nothing is asked twice, the key stays out of sight.

#![cfg(feature = "llm")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fault_server;
mod lab;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use fault_server::{Play, Seen, completion, error, ok};
use lab::{KEY, Lab, answer, bytes, draw, is_judge, is_probe, rows};
use livingrag::generate::{Judgement, LlmStatus};
use livingrag::llm::{Cache, CacheKey};
use livingrag::trace::reader::Run;
use livingrag::trace::row::TraceRow;
use livingrag::trace::writer::write_rows;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::Value;
use support::repository;

/// Of the moments of `kill -9`; another seed is another test.
const SEED: u8 = 5;

/// Three in ten are rate limited at first, others meet something else; every call is answered in the end.
fn troubles(seen: &Seen) -> Play {
    if is_probe(seen) {
        return ok("Oslo");
    }
    match (draw(seen, 20), seen.before) {
        (0 | 1, 0) => error(429, vec![("Retry-After", "0".into())]),
        (2 | 3, 0) => error(429, vec![("Retry-After-Ms", "20".into())]),
        (4 | 5, 0) => error(429, vec![("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT".into())]),
        (6, 0) => error(500, vec![]),
        (7, 0) => Play::Cut(completion(&answer(seen), "stop")),
        (8, 0) => Play::Reply(200, vec![], "{\"choices\": [{\"mess".into()),
        (9, 0) => Play::HangUp,
        (10, _) if !is_judge(seen) => Play::Reply(200, vec![], completion(&answer(seen), "length")),
        (11, _) if !is_judge(seen) => Play::Reply(200, vec![], completion("", "stop")),
        _ => ok(&answer(seen)),
    }
}

#[test]
fn sixty_questions_through_a_bad_endpoint_and_then_without_a_call() {
    let lab = Lab::new(troubles);
    let judged = ["judge.kind=api", "judge.model=judge-model"];
    for method in ["method=linear", "method=living"] {
        let sets = [&[method][..], &judged].concat();
        let (first, log) = lab.works("first", &sets, &[]);
        assert!(log.contains("quote: ") && log.contains("cost unknown"), "{log}");
        let run = rows(&first);
        assert_eq!(run.rows.len(), 60);
        for row in &run.rows {
            // The status is that of the reply, which the script draws from the request.
            let expected = match row.raw_response.as_str() {
                "" => LlmStatus::Empty,
                _ if row.llm_status == LlmStatus::Truncated => LlmStatus::Truncated,
                _ => LlmStatus::Ok,
            };
            assert_eq!(row.llm_status, expected, "{}", row.query_id);
            assert_eq!((row.prompt_tokens, row.completion_tokens, row.cost_usd), (Some(20), Some(5), None));
            match row.prediction.as_str() {
                "" => assert_eq!(row.judge, Judgement::Incorrect),
                _ => assert!(matches!(row.judge, Judgement::Correct | Judgement::Incorrect), "{}", row.query_id),
            }
        }
        let count = |status| run.rows.iter().filter(|r| r.llm_status == status).count();
        assert!(count(LlmStatus::Ok) > 40 && count(LlmStatus::Truncated) > 0, "{}", count(LlmStatus::Ok));
        if method == "method=living" {
            assert!(run.rows.iter().any(|r| r.stored) && run.rows.iter().any(|r| r.scaffold.is_some()));
        }
        let manifest = run.manifest.unwrap();
        assert_eq!((manifest.generator.name.as_str(), manifest.generator.model.as_str()), ("api", "test-model"));
        assert_eq!(manifest.judge.unwrap().model, "judge-model");
        assert!(manifest.notes.iter().any(|n| n.starts_with("prices: list ")), "{:?}", manifest.notes);

        let before = lab.server.arrived();
        let (second, log) = lab.works("second", &sets, &[]);
        assert_eq!(lab.server.arrived(), before, "{log}");
        assert!(log.contains("quote: 0 new calls, "), "{log}");
        assert_eq!(bytes(&first), bytes(&second));
        let (only, _) = lab.works("only", &[&sets[..], &["generate.cache_mode=only"]].concat(), &[]);
        assert_eq!(bytes(&only)["traces.parquet"], bytes(&first)["traces.parquet"]);
        assert_eq!(lab.server.arrived(), before);
    }
    // Probes of each run are past the cache; every other answer was asked for once, and again only after a failure.
    let seen = lab.server.seen();
    assert!(seen.iter().all(|s| s.head.contains(KEY)), "the key goes where it belongs");
    let mut sent: BTreeMap<&str, usize> = BTreeMap::new();
    seen.iter().filter(|s| !is_probe(s)).for_each(|s| *sent.entry(&s.body).or_default() += 1);
    for one in seen.iter().filter(|s| !is_probe(s)) {
        assert_eq!(sent[one.body.as_str()], if draw(one, 20) < 10 { 2 } else { 1 });
    }
    // The key is in no file.
    for name in lab.sandbox.files() {
        let text = std::fs::read(lab.sandbox.path().join(&name)).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("never-to-be-seen"), "the key is in {name}");
    }
}

/// Pitfall 27: a request that is never answered costs its own row and no other; it alone is asked again.
#[test]
fn pitfall_27_a_refused_question_is_one_row() {
    let lab =
        Lab::new(|seen| if draw(seen, 20) == 0 && !is_probe(seen) { error(400, vec![]) } else { ok(&answer(seen)) });
    let sets = ["method=linear", "generate.probe_tokens=0", "judge.kind=api", "judge.model=judge-model"];
    let (first, log) = lab.works("first", &sets, &[]);
    let run = rows(&first);
    let failed: Vec<_> = run.rows.iter().filter(|r| r.llm_status == LlmStatus::Error).collect();
    assert!(run.rows.len() == 60 && !failed.is_empty() && log.contains("got no answer (refused "), "{log}");
    assert!(
        failed.iter().all(|r| r.prompt_tokens.is_none() && r.judge == Judgement::Unscored && r.prediction.is_empty())
    );
    let refused = lab.server.seen().iter().filter(|s| draw(s, 20) == 0).count();
    let before = lab.server.arrived();
    let (second, _) = lab.works("second", &sets, &[]);
    assert_eq!((lab.server.arrived() - before, bytes(&second)), (refused, bytes(&first)));
}

#[test]
fn a_key_that_is_refused_refuses_the_run() {
    let lab = Lab::new(|_| Play::Reply(401, vec![], format!("{{\"error\": {{\"message\": \"bad key {KEY}\"}}}}")));
    let (code, log) = lab.fails("out", &[], &[]);
    assert_eq!(code, 2);
    assert!(log.contains("refuses the key: HTTP 401: bad key [key]") && log.contains("TEST_KEY"), "{log}");
    assert_eq!(lab.server.arrived(), 1, "not retried");
    assert!(!lab.sandbox.files().iter().any(|name| name.ends_with("plan.toml")), "{:?}", lab.sandbox.files());
}

/// Nothing listens: one sentence, no run folder, and not a call for every question.
#[test]
fn an_endpoint_that_is_not_there_refuses_the_run() {
    let lab = Lab::new(|seen| ok(&answer(seen)));
    let sets = ["method=linear", "generate.base_url=http://127.0.0.1:9/v1", "generate.max_tries=1"];
    let (code, log) = lab.fails("out", &sets, &[]);
    assert!(code == 1 && log.contains("the endpoint of test-model gives no answer: "), "{code}\n{log}");
    assert!(lab.server.arrived() == 0);
    let left = std::fs::read_dir(lab.sandbox.path().join("out")).unwrap().map(|e| e.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["indexes"]);
}

#[test]
fn a_dry_run_quotes_and_asks_nothing() {
    let lab = Lab::new(|seen| ok(&answer(seen)));
    lab.sandbox.write("prices.toml", "version = \"t\"\n[models.test-model]\nprompt = 1000.0\ncompletion = 0.0\n");
    let sets = ["method=living", "generate.prices=prices.toml"];
    let (_, log) = lab.works("out", &sets, &["--dry-run"]);
    assert!(log.contains("quote: 60 new calls, 0 cached, about $"), "{log}");
    assert!(lab.server.arrived() == 0 && !lab.sandbox.path().join("out/run").exists());
    let (folder, _) = lab.works("out", &sets, &[]);
    // 20 tokens at $1000 a million.
    assert!(rows(&folder).rows.iter().all(|r| r.cost_usd == Some(0.02)));
    let (_, log) = lab.works("other", &sets, &["--dry-run"]);
    assert!(log.contains("quote: 0 new calls, 60 cached, about $0.00"), "{log}");
}

#[test]
fn an_answer_that_is_not_kept_is_named_where_nothing_may_be_asked() {
    let lab = Lab::new(|seen| ok(&answer(seen)));
    let sets = ["method=linear", "generate.cache_mode=only"];
    assert!(lab.fails("out", &sets, &[]).1.contains("there is no cache at cache.sqlite"));
    lab.works("some", &["method=linear", "replay.limit=6"], &[]);
    let before = lab.server.arrived();
    let (code, log) = lab.fails("out", &sets, &[]);
    let seventh: Value =
        serde_json::from_slice(&std::fs::read(repository().join("data/demo/demo.json")).unwrap()).unwrap();
    let id = seventh[6].get("id").or(seventh[6].get("_id")).and_then(Value::as_str).unwrap();
    assert!(code == 1 && log.contains(&format!("no answer is kept for the question {id:?}")), "{log}");
    assert_eq!(lab.server.arrived(), before);
}

/// A cap stops between two calls, says how to go on, and what was spent counts on.
#[test]
fn a_cap_stops_and_resumes() {
    let lab = Lab::new(|seen| ok(&answer(seen)));
    let run = |cap: &str, more: &[&str]| lab.output("out", &["method=linear", "generate.probe_tokens=0", cap], more);
    let text = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let first = run("generate.max_calls=20", &[]);
    assert!(
        first.status.code() == Some(1) && text(&first).contains("the cap of 20 calls is reached"),
        "{}",
        text(&first)
    );
    assert!(text(&first).contains("generate.max_calls") && text(&first).contains("--resume"), "{}", text(&first));
    assert_eq!(lab.server.arrived(), 20);
    let second = run("generate.max_calls=30", &["--resume"]);
    assert!(text(&second).contains("the cap of 30 calls is reached"), "{}", text(&second));
    assert_eq!(lab.server.arrived(), 30, "the first twenty count");
    // The block that the cap broke off was paid for in part, and that counts too.
    let more = run("generate.max_calls=31", &["--resume"]);
    assert!(text(&more).contains("the cap of 31 calls is reached"), "{}", text(&more));
    assert_eq!(lab.server.arrived(), 31);
    let third = run("generate.max_calls=0", &["--resume"]);
    assert!(third.status.success(), "{}", text(&third));
    let bodies: BTreeSet<String> = lab.server.seen().into_iter().map(|s| s.body).collect();
    assert_eq!((lab.server.arrived(), bodies.len()), (60, 60), "nothing was asked twice");
    let folder = lab.sandbox.path().join(String::from_utf8(third.stdout).unwrap().trim());
    assert_eq!(rows(&folder).rows.len(), 60);

    // Dollars: without a price they cannot be capped; with one the cap is never passed.
    let (code, log) = lab.fails("usd", &["generate.max_usd=1"], &[]);
    assert!(code == 2 && log.contains("generate.prices"), "{log}");
    lab.sandbox.write("prices.toml", "version = \"t\"\n[models.test-model]\nprompt = 1000.0\ncompletion = 0.0\n");
    let sets =
        ["generate.max_usd=1", "generate.prices=prices.toml", "generate.cache=usd.sqlite", "generate.probe_tokens=0"];
    let before = lab.server.arrived();
    let (code, log) = lab.fails("usd", &sets, &[]);
    assert!(code == 1 && log.contains("the cap of $1 is reached"), "{log}");
    assert!((lab.server.arrived() - before) as f64 * 0.02 <= 1.0);
}

fn kept(cache: &Path) -> BTreeSet<CacheKey> {
    if !cache.is_file() {
        return BTreeSet::new();
    }
    let Ok(cache) = Cache::open_existing(cache) else { return BTreeSet::new() };
    cache.page(None, 10_000).unwrap().into_iter().map(|entry| entry.key).collect()
}

/// The key of a body at attempt 0, by its definition: blake3 of address, body and attempt, each closed by a zero byte.
fn key(address: &str, body: &str) -> CacheKey {
    let bytes = format!("{address}\0{body}\x000\0");
    CacheKey(*blake3::hash(bytes.as_bytes()).as_bytes())
}

/// `kill -9` at twenty moments of an api run, resumed: the rows of an unbroken run, and nothing that was kept is sent again.
///
/// Most moments are so many requests after a start and a little later, so that they fall on calls of reader and judge, on writes of the
/// cache and on the end of a block; every fifth is so long after a start, wherever that is.
#[cfg(unix)]
#[test]
fn killed_and_resumed_is_unbroken_and_asks_nothing_twice() {
    const KILLS: usize = 20;
    let lab = Lab::new(|seen| Play::After(Duration::from_millis(30), Box::new(troubles(seen))));
    // Two at a time, and slowly: every kill finds some calls left to do.
    let common = [
        "method=living",
        "generate.probe_tokens=0",
        "generate.concurrency=2",
        "judge.kind=api",
        "judge.model=judge-model",
    ];
    let (unbroken, _) = lab.works("unbroken", &[&common[..], &["generate.cache=other.sqlite"]].concat(), &[]);
    // Faults are played again for the second cache: the counts of the server go on, so it meets fewer of them.
    let mut random = ChaCha8Rng::from_seed([SEED; 32]);
    let (mut killed, mut kept_after) = (0, Vec::new());
    for round in 0..KILLS {
        let (before, had) = (lab.server.arrived(), kept(&lab.cache()));
        let mut child =
            lab.command("killed", &common, &["--resume"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (start, most) = (Instant::now(), Duration::from_secs(60));
        let by_time = round % 5 == 4;
        let after = Duration::from_micros(random.next_u64() % 300_000);
        let until = before + 1 + random.next_u64() as usize % 4;
        while child.try_wait().unwrap().is_none() && start.elapsed() < most {
            if if by_time { start.elapsed() >= after } else { lab.server.arrived() >= until } {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.next_u64() % 15_000));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        for seen in &lab.server.seen()[before..] {
            assert!(!had.contains(&key(&lab.server.base_url(), &seen.body)), "round {round}: sent again though kept");
        }
        kept_after.push(kept(&lab.cache()).len());
    }
    assert_eq!(killed, KILLS, "each ended by the kill (seed {SEED}), with so many answers kept: {kept_after:?}");
    kept_after.dedup();
    // On a busy machine some kills come before any answer.
    assert!(kept_after.len() >= 6, "kills were in the middle of the work (seed {SEED}): {kept_after:?}");
    let (before, had) = (lab.server.arrived(), kept(&lab.cache()));
    let (folder, _) = lab.works("killed", &common, &["--resume"]);
    assert!(lab.server.seen()[before..].iter().all(|s| !had.contains(&key(&lab.server.base_url(), &s.body))));
    let (whole, broken) = (bytes(&unbroken), bytes(&folder));
    for name in ["traces.parquet", "experiences.parquet", "manifest.json", "order.json"] {
        assert!(whole[name] == broken[name], "{name} differs (seed {SEED})");
    }
    assert_eq!(whole.len(), broken.len());
}

/// What the parts of a broken-off run did adds up in the manifest of the whole.
#[test]
fn counters_are_those_of_the_whole_run() {
    let lab = Lab::new(troubles);
    let sets = ["method=linear", "generate.probe_tokens=0", "replay.timings=true"];
    let capped = [&sets[..], &["generate.max_calls=32"]].concat();
    assert!(lab.fails("out", &capped, &[]).1.contains("the cap of 32 calls is reached"));
    let (folder, _) = lab.works("out", &sets, &["--resume"]);
    let counters = rows(&folder).manifest.unwrap().counters;
    assert_eq!(counters["llm_requests_sent"], lab.server.arrived() as u64);
    let retried: u64 = counters.iter().filter(|(name, _)| name.starts_with("llm_retries_")).map(|(_, n)| n).sum();
    let answers: u64 = counters.iter().filter(|(name, _)| name.starts_with("llm_answers_")).map(|(_, n)| n).sum();
    let answered = answers - counters["llm_answers_without_usage"];
    assert_eq!(counters["llm_requests_sent"], answered + retried, "{counters:?}");
    // A refusal is not kept, so one in the block that the cap broke off is asked again.
    assert!((60..=60 + counters["llm_answers_error"]).contains(&answered), "{counters:?}");
}

/// Pitfall 22: the other marker, from stored text alone.
#[test]
fn pitfall_22_rescoring_takes_the_other_marker_without_a_call() {
    let lab = Lab::new(|seen| {
        ok(&if is_judge(seen) { answer(seen) } else { format!("{}? No. Answer: Milan", answer(seen)) })
    });
    let sets = ["method=living", "replay.limit=12", "judge.kind=api", "judge.model=judge-model", "judge.repeats=3"];
    let (folder, _) = lab.works("out", &sets, &[]);
    let before = lab.server.arrived();
    let run = folder.display().to_string();
    let rescore = |set: &str, out: &str| lab.sandbox.output(&["rescore", &run, "--set", set, "--out", out]);
    let done = rescore("generate.answer_marker=last", "last");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let new = rows(&lab.sandbox.path().join(String::from_utf8(done.stdout).unwrap().trim()));
    let old = rows(&folder);
    assert_eq!(lab.server.arrived(), before);
    for (old, new) in old.rows.iter().zip(&new.rows) {
        assert!(old.prediction != "Milan" && new.prediction == "Milan" && new.raw_response == old.raw_response);
        assert_eq!((new.contain, new.judge, new.stored), (Some(false), Judgement::Unscored, old.stored));
        assert!(new.judge_raw.is_empty() && new.judge_agreement.is_none());
        assert_ne!(old.run_id, new.run_id);
    }
    let notes = new.manifest.unwrap().notes;
    assert!(
        notes.iter().any(|n| n.starts_with("rescored from the stored answers of ") && n.contains("12 of 12")),
        "{notes:?}"
    );
    // The same marker changes nothing but the name, and a taken folder is refused.
    let same = rescore("generate.answer_marker=first", "first");
    let same = rows(&lab.sandbox.path().join(String::from_utf8(same.stdout).unwrap().trim()));
    let scores = |run: &Run| run.rows.iter().map(|r| (r.prediction.clone(), r.contain, r.judge)).collect::<Vec<_>>();
    assert_eq!(scores(&same), scores(&old));
    // The judge's stored text is read anew: what an earlier program had misread comes right, without a call.
    assert!(old.rows.iter().all(|r| r.judge_raw.len() == 3 && r.judge_agreement == Some(1.0)));
    let misread = |row: &TraceRow| TraceRow { judge: Judgement::Unscored, judge_agreement: None, ..row.clone() };
    let misread: Vec<_> = old.rows.iter().map(misread).collect();
    write_rows(&folder.join("traces.parquet"), &misread).unwrap();
    let done = rescore("generate.answer_marker=first", "judged");
    let log = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(log.contains("12 judgements read anew, 12 changed, 0 are of another answer"), "{log}");
    let judged = rows(&lab.sandbox.path().join(String::from_utf8(done.stdout).unwrap().trim()));
    assert_eq!(scores(&judged), scores(&old));
    assert!(judged.rows.iter().all(|r| r.judge_agreement == Some(1.0)) && lab.server.arrived() == before);
    assert_eq!(rescore("generate.answer_marker=first", "first").status.code(), Some(2));
    assert_eq!(rescore("retrieve.top_k=3", "other").status.code(), Some(2));
}

/// A sweep asks each distinct question once, quotes before, and its runs are those done alone; a second sweep asks nothing.
#[test]
fn a_sweep_asks_equal_requests_once() {
    let lab = Lab::new(|seen| if is_probe(seen) { ok("Oslo") } else { ok(&answer(seen)) });
    let text = format!(
        "name = \"s\"\nbase = [\"run.toml\"]\nmethods = [\"linear\", \"living\"]\norders = [\"file\", \"reverse\"]\n\n\
         [[dataset]]\npath = {:?}\n",
        repository().join("data/demo")
    );
    lab.sandbox.write("sweep.toml", text);
    let sweep = |out: &str, more: &[&str]| {
        let mut command = lab.sandbox.command(&[&["sweep", "sweep.toml", "--out", out], more].concat());
        let output = command.env("TEST_KEY", KEY).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !log.contains("never-to-be-seen"), "{log}");
        log
    };
    let asked = || lab.server.seen().iter().filter(|seen| !is_probe(seen)).count();

    let log = sweep("first", &["--dry-run"]);
    assert!(log.contains("quote: ") && log.contains(" new calls, 0 cached") && lab.server.arrived() == 0, "{log}");
    sweep("first", &[]);
    let bodies: BTreeSet<String> =
        lab.server.seen().iter().filter(|seen| !is_probe(seen)).map(|seen| seen.body.clone()).collect();
    // `linear` asks the same in both orders.
    assert!(asked() == bodies.len() && (60..=180).contains(&asked()), "{} of {}", bodies.len(), asked());
    let before = lab.server.arrived();
    let log = sweep("second", &[]);
    assert!(log.contains("quote: 0 new calls") && lab.server.arrived() == before, "{log}");

    for (method, order) in [("linear", "file"), ("living", "reverse")] {
        let (method, order) = (format!("method={method}"), format!("order={order}"));
        let (alone, _) = lab.works("alone", &[&method, &order], &[]);
        let name = alone.file_name().unwrap();
        for sweep in ["first/s", "second/s"] {
            assert!(bytes(&lab.sandbox.path().join(sweep).join(name)) == bytes(&alone), "{sweep} {method} {order}");
        }
    }
    assert_eq!(lab.server.arrived(), before);
}
