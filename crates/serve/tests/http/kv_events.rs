//! Cache events as routers receive them.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use serde_json::{Value, json};
use serve::{KvEventsConfig, KvEventsFormat, ServerConfig};
use tokio::runtime;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use crate::server::{TestServer, model, start, storyteller};

/// An endpoint that is free, for a moment at least.
fn endpoint() -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("tcp://{address}")
}

fn frames(message: ZmqMessage) -> Vec<Vec<u8>> {
    message.into_vec().into_iter().map(|frame| frame.to_vec()).collect()
}

/// Number and batch of each message that is sent again, from a number on.
async fn replay(endpoint: &str, first: u64) -> Vec<(u64, Value)> {
    let mut dealer = DealerSocket::new();
    dealer.connect(endpoint).await.unwrap();
    let mut request = ZmqMessage::from(first.to_be_bytes().to_vec());
    request.push_front(Default::default());
    dealer.send(request).await.unwrap();
    let mut batches = Vec::new();
    loop {
        let answer = timeout(Duration::from_secs(20), dealer.recv()).await.unwrap().unwrap();
        let [empty, topic, number, batch] = <[Vec<u8>; 4]>::try_from(frames(answer)).unwrap();
        assert!(empty.is_empty());
        let number = u64::from_be_bytes(number.try_into().unwrap());
        if number == u64::MAX {
            assert!(topic.is_empty() && batch.is_empty());
            return batches;
        }
        assert!(topic.starts_with(b"kv@"));
        batches.push((number, rmp_serde::from_slice(&batch).unwrap()));
    }
}

/// All batches, once there are enough: they are published after the answer that they come of.
async fn replay_until(endpoint: &str, enough: impl Fn(&[(u64, Value)]) -> bool) -> Vec<(u64, Value)> {
    for _ in 0..500 {
        let batches = replay(endpoint, 0).await;
        if enough(&batches) {
            return batches;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the batches never came");
}

#[test]
fn routers_learn_which_tokens_the_cache_holds() {
    let (publishing, replaying) = (endpoint(), endpoint());
    let kv_events = KvEventsConfig {
        replay_endpoint: Some(replaying.clone()),
        topic: Some("kv@pod@storyteller".into()),
        ..KvEventsConfig::new(&publishing)
    };
    let config = ServerConfig { kv_events: Some(kv_events), ..ServerConfig::default() };
    let server = TestServer::new(config, vec![storyteller()]);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut listener = SubSocket::new();
    runtime.block_on(async {
        listener.connect(&publishing).await.unwrap();
        listener.subscribe("kv@pod").await.unwrap();
    });
    let prompt = "Once upon a time there was a little cat who lived in a big house. ".repeat(3);
    let body = json!({"model": "storyteller", "prompt": prompt, "max_tokens": 1, "temperature": 0});
    let tokens =
        server.post("/tokenize", &json!({"model": "storyteller", "prompt": prompt})).ok()["tokens"].clone();
    let salted = json!({"prompt": prompt, "max_tokens": 1, "cache_salt": "secret"});
    server.post("/v1/completions", &salted).ok();
    server.post("/v1/completions", &body).ok();

    let batches = runtime.block_on(replay_until(&replaying, |batches| batches.len() > 1));
    assert!(batches.iter().enumerate().all(|(index, (number, _))| *number == index as u64));
    let events: Vec<&Value> = batches.iter().flat_map(|(_, batch)| batch[1].as_array().unwrap()).collect();
    assert_eq!(events[0], &json!(["AllBlocksCleared"]));
    let [_, stored] = events[..] else { panic!("the pages with a salt are not published: {events:?}") };
    let pages = tokens.as_array().unwrap().len() / 16;
    assert_eq!(stored[0], "BlockStored");
    assert_eq!(stored[1].as_array().unwrap().len(), pages);
    assert_eq!(stored[2], Value::Null);
    assert_eq!(stored[3].as_array().unwrap(), &tokens.as_array().unwrap()[..pages * 16]);
    assert_eq!(stored.as_array().unwrap()[4..], [json!(16), Value::Null, json!("GPU"), Value::Null]);
    // Those who listen get the same, with the topic.
    let sent =
        runtime.block_on(async { timeout(Duration::from_secs(20), listener.recv()).await.unwrap().unwrap() });
    let [topic, number, batch] = <[Vec<u8>; 3]>::try_from(frames(sent)).unwrap();
    assert_eq!(topic, b"kv@pod@storyteller");
    let number = u64::from_be_bytes(number.try_into().unwrap());
    assert_eq!(batches[number as usize].1, rmp_serde::from_slice::<Value>(&batch).unwrap());
    assert_eq!(runtime.block_on(replay(&replaying, 1)), batches[1..]);
}

#[test]
fn maps_and_salted_pages_are_published_on_demand() {
    let replaying = endpoint();
    let kv_events = KvEventsConfig {
        replay_endpoint: Some(replaying.clone()),
        format: KvEventsFormat::Map,
        salted: true,
        ..KvEventsConfig::new(endpoint())
    };
    let config = ServerConfig { kv_events: Some(kv_events), ..ServerConfig::default() };
    let server = TestServer::new(config, vec![storyteller()]);
    let body =
        json!({"prompt": "a b c d e f g h i j k l m n o p q r", "max_tokens": 1, "cache_salt": "mine"});
    server.post("/v1/completions", &body).ok();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let batches = runtime.block_on(replay_until(&replaying, |batches| batches.len() > 1));
    let event = &batches.last().unwrap().1[1][0];
    assert_eq!((&event["type"], &event["block_size"]), (&json!("BlockStored"), &json!(16)));
}

#[test]
fn events_that_cannot_be_published_are_refused() {
    let refused = |endpoint: &str, models| {
        let kv_events = Some(KvEventsConfig::new(endpoint));
        let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()];
        start(ServerConfig { addresses, kv_events, ..ServerConfig::default() }, models)
            .err()
            .unwrap()
            .to_string()
    };
    let free = endpoint();
    assert!(refused(&free, Vec::new()).contains("exactly one model that makes text"));
    let config = storyteller().config.enable_prefix_caching(false);
    let uncached = serve::ModelConfig { config, ..storyteller() };
    assert!(refused(&free, vec![uncached]).contains("cache events need prefix caching, which is off"));
    assert!(refused("tcp://nowhere", vec![storyteller()]).contains("cannot bind tcp://nowhere: "));
    assert!(
        refused("smoke://signal", vec![model("a", Default::default())])
            .contains("cannot bind smoke://signal: ")
    );
}
