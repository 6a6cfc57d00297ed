//! The service as a value: requests that no socket carries.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use serve::{ServerConfig, Service};
use tower_service::Service as _;

use crate::server::{service, storyteller};

async fn ask(mut service: Service, request: Request<Body>) -> Response {
    service.call(request).await.unwrap()
}

async fn text(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).header(header::HOST, "localhost").body(Body::empty()).unwrap()
}

fn post(path: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path).header(header::HOST, "localhost");
    request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string())).unwrap()
}

#[test]
fn service_answers_requests_whole_and_as_a_stream_without_sockets() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let service = service(ServerConfig::default(), vec![storyteller()], runtime.handle());
    let status = |path: &str| runtime.block_on(ask(service.clone(), get(path))).status();
    assert_eq!(status("/ready"), StatusCode::SERVICE_UNAVAILABLE, "no model is loaded");
    service.load().unwrap();
    assert_eq!(status("/ready"), StatusCode::OK);

    let answer = |stream: bool| {
        let body =
            json!({ "model": "storyteller", "prompt": "Once", "max_tokens": 8, "seed": 1, "stream": stream });
        runtime.block_on(async {
            let response = ask(service.clone(), post("/v1/completions", &body)).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert!(response.headers().contains_key("x-request-id"));
            text(response).await
        })
    };
    let whole: Value = serde_json::from_str(&answer(false)).unwrap();
    assert_eq!(whole["usage"]["completion_tokens"], 8);
    let events = answer(true);
    let pieces =
        events.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let streamed: String =
        pieces.filter_map(|piece| Some(piece["choices"][0]["text"].as_str()?.to_string())).collect();
    assert_eq!(streamed, whole["choices"][0]["text"].as_str().unwrap());
}
