//! The chat client against a real endpoint, where there is one: `LIVINGRAG_TEST_ENDPOINT=http://127.0.0.1:8000/v1,model-name`.

#![cfg(feature = "llm")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use livingrag::llm::probe::probe;
use livingrag::llm::{Call, ChatRequest, Client, ClientSettings, LlmStatus, Message};

#[test]
fn a_real_endpoint_answers_both_ways() {
    let Ok(endpoint) = std::env::var("LIVINGRAG_TEST_ENDPOINT") else {
        println!("skipped: no LIVINGRAG_TEST_ENDPOINT");
        return;
    };
    let (base_url, model) = endpoint.split_once(',').expect("address,model");
    let settings = ClientSettings { concurrency: 2, ..ClientSettings::default() };
    let client = Client::new(settings, None, None, None).unwrap();
    let ask = |text: &str, max_tokens| ChatRequest::new(base_url, model, vec![Message::user(text)], max_tokens);
    let mut calls: Vec<_> = [("Name three rivers of Europe.", 48), ("Write a long poem about the sea.", 8)]
        .into_iter()
        .map(|(text, most)| Call { question: text.into(), attempt: 0, request: ask(text, most) })
        .collect();
    let plain = client.complete(&calls).unwrap();
    calls.iter_mut().for_each(|c| c.request.stream = true);
    let streamed = client.complete(&calls).unwrap();
    for (plain, streamed) in plain.iter().zip(&streamed) {
        println!("{:?} {:?} {:?} {} ms", plain.status, plain.text, plain.usage, plain.elapsed_us / 1000);
        assert!(plain.status != LlmStatus::Error, "{:?}", plain.error);
        assert_eq!((&plain.text, plain.status), (&streamed.text, streamed.status));
        assert_eq!(plain.usage.completion_tokens, streamed.usage.completion_tokens);
    }
    assert_eq!(plain[1].status, LlmStatus::Truncated);
    let found = probe(&client, &ask("", 32), 600).unwrap();
    println!("{found}\n{:#?}\n{:#?}", found.warnings(), client.ledger());
    let long = probe(&client, &ask("", 32), 4000).unwrap();
    println!("{long}\n{:#?}", long.warnings());
}
