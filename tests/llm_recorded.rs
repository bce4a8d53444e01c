//! A recording made from the request cache replays answers and judgements without an endpoint, and what it does not hold is named.

#![cfg(feature = "llm")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fault_server;
mod lab;
mod support;

use fault_server::ok;
use lab::{Lab, answer, is_judge, is_probe, rows};
use livingrag::generate::Judgement;
use livingrag::trace::row::TraceRow;

const METHODS: [&str; 2] = ["method=linear", "method=living"];
/// The recording in place of the endpoint; the lab's configuration stands otherwise.
const RECORDED: [&str; 6] = [
    "generate.kind=recorded",
    "generate.base_url=",
    "generate.model=answers.jsonl",
    "judge.kind=recorded",
    "judge.model=answers.jsonl",
    "judge.repeats=2",
];
const ASKED: [&str; 3] = ["judge.kind=api", "judge.model=judge-model", "judge.repeats=2"];

/// Runs both methods through the server and records what it said.
fn recorded() -> (Lab, Vec<Vec<TraceRow>>) {
    let lab = Lab::new(|seen| match (is_probe(seen), is_judge(seen), seen.before) {
        (true, ..) => ok("Oslo"),
        // The second time a judge is asked the same it cannot be understood.
        (_, true, 1) => ok("Hard to say."),
        _ => ok(&answer(seen)),
    });
    let run = |method: &&str| rows(&lab.works("asked", &[&[*method][..], &ASKED].concat(), &[]).0).rows;
    let asked = METHODS.iter().map(run).collect();
    let export = lab.sandbox.output(&["cache", "export", "--recorded", "answers.jsonl", "--cache", "cache.sqlite"]);
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    (lab, asked)
}

/// What of a row is the same whoever said it.
fn same(mut row: TraceRow) -> TraceRow {
    row.run_id.clear();
    row
}

#[test]
fn a_recording_replays_a_run_without_an_endpoint() {
    let (lab, asked) = recorded();
    let before = lab.server.arrived();
    for (method, asked) in METHODS.iter().zip(asked) {
        let (folder, log) = lab.works("replayed", &[&[*method][..], &RECORDED].concat(), &[]);
        assert!(!log.contains("quote") && !log.contains("probe"), "{log}");
        let run = rows(&folder);
        assert!(run.rows.iter().all(|r| r.judge_raw.len() == 2 && r.judge_agreement == Some(0.5)));
        let rows: Vec<_> = run.rows.into_iter().map(same).collect();
        assert!(rows == asked.into_iter().map(same).collect::<Vec<_>>(), "{method}: the rows differ");
        assert!(
            rows.iter().any(|r| r.judge == Judgement::Correct) && rows.iter().any(|r| r.judge == Judgement::Incorrect)
        );
        let manifest = run.manifest.unwrap();
        assert_eq!((manifest.generator.name.as_str(), manifest.generator.simulated), ("recorded", false));
        assert!(manifest.generator.model.contains("test-model"), "{}", manifest.generator.model);
        assert_eq!(manifest.judge.unwrap().name, "recorded");
        let said = |text: &str| manifest.notes.iter().any(|note| note.contains(text));
        assert!(said("recorded, not asked: ") && said("\"max_tokens\":64"), "{:?}", manifest.notes);
    }
    assert_eq!(lab.server.arrived(), before);
    // Where the file lies makes no other run.
    std::fs::rename(lab.sandbox.path().join("answers.jsonl"), lab.sandbox.path().join("moved.jsonl")).unwrap();
    let moved = ["generate.model=moved.jsonl", "judge.model="];
    let log = lab.works("replayed", &[&METHODS[..1], &RECORDED, &moved].concat(), &["--resume"]).1;
    assert!(log.contains("finished already"), "{log}");
    // Recorded answers may be judged by somebody else.
    let judged = [
        "judge.kind=api",
        "judge.model=other",
        &format!("judge.base_url={}", lab.server.base_url()),
        "judge.repeats=1",
    ];
    let (folder, log) = lab.works("judged", &[&METHODS[..1], &RECORDED, &moved, &judged].concat(), &[]);
    assert!(log.contains("quote: ") && lab.server.arrived() > before, "{log}");
    assert_eq!(rows(&folder).manifest.unwrap().judge.unwrap().model, "other");
    for name in lab.sandbox.files() {
        let text = std::fs::read(lab.sandbox.path().join(&name)).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("never-to-be-seen"), "the key is in {name}");
    }
}

#[test]
fn what_was_not_recorded_is_named() {
    let (lab, _) = recorded();
    let text = std::fs::read_to_string(lab.sandbox.path().join("answers.jsonl")).unwrap();
    let of = |role: &str, question: &str| {
        let model = format!("\"model\":\"{role}\"");
        let keep = |line: &&str| !(line.contains(&model) && line.contains(&format!("\"question\":\"{question}\"")));
        text.lines().filter(keep).map(|line| format!("{line}\n")).collect::<String>()
    };
    for (role, question) in [("test-model", "demo-009"), ("judge-model", "demo-007")] {
        let less = of(role, question);
        assert!(less.lines().count() < text.lines().count(), "{role}");
        lab.sandbox.write("answers.jsonl", less);
        let (code, log) = lab.fails(role, &[&METHODS[..1], &RECORDED].concat(), &[]);
        assert!(
            code == 1 && log.contains(&format!("answers.jsonl has no answer for the question {question:?}")),
            "{log}"
        );
    }
    // Pitfall 31: another completion limit is another request.
    lab.sandbox.write("answers.jsonl", &text);
    let (code, log) = lab.fails("other", &[&METHODS[..1], &RECORDED, &["generate.max_tokens=65"]].concat(), &[]);
    assert!(code == 1 && log.contains("\"max_tokens\":65") && log.contains("\"max_tokens\":64"), "{log}");
}
