//! `peri serve` as a program: what it prints, what signals do, and what it logs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Folder, command, peri};

/// A server that is killed if its test fails.
pub(crate) struct Served {
    child: Child,
    /// `None` if the test has given the server another one.
    stderr: Option<BufReader<ChildStderr>>,
    stdout: BufReader<ChildStdout>,
    address: String,
    threads: u64,
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn serve(arguments: &[&str], variables: &[(&str, &str)]) -> Served {
    Served::start(server(arguments).envs(variables.iter().copied()))
}

/// `peri serve` on a free port, which it prints as JSON.
fn server(arguments: &[&str]) -> Command {
    let mut words = [&["serve", "--json", "--port", "0", "--threads", "2"][..], arguments].concat();
    if !words.contains(&"--quiet") {
        words.push("--quiet");
    }
    command(&words)
}

impl Served {
    fn start(command: &mut Command) -> Served {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().map(BufReader::new);
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let address =
            started["urls"][0].as_str().unwrap().replace("http://", "").replace("0.0.0.0", "127.0.0.1");
        let threads = started["threads"].as_u64().unwrap();
        Served { child, stderr, stdout, address, threads }
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// The exit code, and the rest of standard error.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let rest = self.stderr.take().map(rest).unwrap_or_default();
        (self.child.wait().unwrap().code(), rest)
    }

    /// The next line of standard error.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    pub(crate) fn reply(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        rest(self.send(method, path, headers, body))
    }
}

fn rest(mut stream: impl Read) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

/// The text of a stream of completions, which must have come to its end.
fn streamed_text(reply: &str) -> String {
    assert!(reply.contains("data: [DONE]"), "{reply}");
    let events = reply.lines().filter_map(|line| line.strip_prefix("data: {"));
    let text = |event: &str| {
        let event: Value = serde_json::from_str(&format!("{{{event}")).unwrap();
        event["choices"][0]["text"].as_str().unwrap_or_default().to_string()
    };
    events.map(text).collect()
}

#[test]
fn the_first_line_is_for_people_or_for_programs() {
    let mut served = serve(&[], &[]);
    assert_eq!(served.threads, 2);
    served.signal("-TERM");
    assert_eq!(served.end(), (Some(0), String::new()));
    assert_eq!(rest(&mut served.stdout), "");

    let folder = Folder::new("serve-socket");
    let socket = folder.path().join("socket").display().to_string();
    let arguments = ["serve", "--port", "0", "--quiet", "--host", "127.0.0.1", "--host"];
    let mut child = command(&[&arguments[..], &[&format!("unix:{socket}")]].concat()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = [String::new(), String::new()];
    for line in &mut lines {
        stderr.read_line(line).unwrap();
    }
    assert!(lines[0].starts_with("listening on http://127.0.0.1:"), "{lines:?}");
    assert!(lines[0].ends_with(&format!(" and unix:{socket}\n")), "{lines:?}");
    assert!(lines[1].starts_with("serving storyteller ("), "{lines:?}");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    assert!(rest(stream).ends_with(r#"{"status":"ok"}"#));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!folder.path().join("socket").exists());
}

#[test]
fn addresses_and_files_that_are_wrong_are_refused() {
    for (arguments, part) in [
        (&["--host", "0.0.0.0"][..], "give them with --key-file, or allow everyone with --insecure"),
        (&["--host", "example.com"], "give an IP address, or unix:PATH"),
        (&["--tls-cert", "a"], "--tls-key"),
        (&["--tls-cert", "/nothing", "--tls-key", "/nothing"], "/nothing: "),
        (&["--log-format", "xml"], "give one of text, json, off"),
        (&["--drain-timeout", "0"], "give seconds, from 0.001"),
    ] {
        let outcome = peri(&[&["serve", "--port", "0", "--quiet"], arguments].concat());
        assert!(
            outcome.code != Some(0) && outcome.stderr.contains(part),
            "{arguments:?}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn keys_come_from_the_environment_and_from_a_file_that_sighup_reads_again() {
    let folder = Folder::new("serve-keys");
    let line = "alice:infer:bf5c9d7a9e8a5c1c3e1a5bd8a3c8b6d1ad6cbb2ea1a67a7d8ff1d02a2a1f0c11\n";
    let file = folder.file("keys", line);
    let mut served = serve(&["--key-file", &file], &[("PERI_API_KEY", "secret")]);
    let status = |key: &str| {
        served.reply("GET", "/v1/models", &format!("x-api-key: {key}\r\n"), "")[9..12].to_string()
    };
    assert_eq!((status("secret"), status("other")), ("200".to_string(), "401".to_string()));
    folder.file("keys", "no key");
    served.signal("-HUP");
    let mut error = served.line();
    // The requests before are logged too.
    while !error.ends_with("; kept keys and certificates\n") {
        assert!(!error.is_empty() && !error.contains("secret"), "{error}");
        error = served.line();
    }
    assert!(error.starts_with("peri: ") && error.contains("keys: line 1: "), "{error}");
    folder.file("keys", line);
    served.signal("-HUP");
    while served.line() != "read keys and certificates again\n" {
        assert!(served.child.try_wait().unwrap().is_none(), "it runs");
    }
    served.signal("-INT");
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn each_request_is_a_line_of_the_log_without_what_users_wrote() {
    let body = json!({"prompt": "my secret prompt", "max_tokens": 3, "ignore_eos": true}).to_string();
    let mut served = serve(&["--log-format", "json"], &[("PERI_API_KEY", "my-key")]);
    served.reply("POST", "/v1/completions", "x-api-key: my-key\r\nX-Request-Id: mine\r\n", &body);
    served.reply("GET", "/no/%1b[31m?secret=1", "x-api-key: my-key\r\nX-Request-Id: \u{1b}[31m\r\n", "");
    served.signal("-TERM");
    let (code, log) = served.end();
    assert_eq!(code, Some(0));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: Vec<&Value> = lines.iter().filter(|line| line.get("route").is_some()).collect();
    let [answer, unknown] = requests[..] else { panic!("{log}") };
    assert_eq!((answer.get("error"), &unknown["error"]), (None, &json!("invalid_request_error")), "{log}");
    let messages: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
    for part in [
        "listening on http://127.0.0.1:",
        "serving storyteller (",
        "loaded storyteller in ",
        "ending: 0 requests run",
        "ended",
    ] {
        assert!(messages.iter().any(|message| message.starts_with(part)), "{part} in {log}");
    }
    for line in lines.iter().filter(|line| line.get("route").is_none()) {
        assert!(line["time"].is_string() && line["level"] == "info", "{line}");
    }
    for (name, value) in [
        ("id", json!("mine")),
        ("key", json!("default")),
        ("route", json!("/v1/completions")),
        ("model", json!("storyteller")),
        ("status", json!(200)),
        ("generated_tokens", json!(3)),
        ("cached_tokens", json!(0)),
        ("finish", json!("length")),
    ] {
        assert_eq!(answer[name], value, "{name} in {log}");
    }
    for name in ["queue", "first_token", "tokens_per_second", "seconds"] {
        assert!(answer[name].is_number(), "{name} in {log}");
    }
    assert_eq!((&unknown["status"], &unknown["route"]), (&json!(400), &json!("-")), "{log}");
    for secret in ["secret", "my-key", "\u{1b}", "31m"] {
        assert!(!log.contains(secret), "{secret:?} in {log}");
    }

    let mut served = serve(&[], &[]);
    served.reply("POST", "/v1/completions", "", &body);
    served.signal("-TERM");
    let log = served.end().1;
    assert!(
        log.starts_with("time=") && log.contains(" route=/v1/completions model=storyteller status=200 "),
        "{log}"
    );
    assert!(log.contains(" generated_tokens=3 ") && log.contains(" key=- "), "{log}");
}

/// SIGTERM while 64 streams are under way: all come to their end, new requests are refused, and the exit code is 0.
fn terminated_under_streams(rounds: usize) {
    let body = |seed: usize, tokens: usize| {
        json!({"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": true, "seed": seed, "stream": true})
            .to_string()
    };
    let mut expected = Vec::new();
    for round in 0..rounds {
        let mut served = serve(&["--max-length", "256", "--log-format", "off"], &[]);
        let mut streams: Vec<TcpStream> =
            (0..64).map(|seed| served.send("POST", "/v1/completions", "", &body(seed % 8, 128))).collect();
        let mut heads = vec![[0; 12]; streams.len()];
        for (stream, head) in streams.iter_mut().zip(&mut heads) {
            stream.read_exact(head).unwrap();
            assert_eq!(head, b"HTTP/1.1 200");
        }
        served.signal("-TERM");
        let ended = Instant::now();
        let refused = loop {
            let ready = served.reply("GET", "/ready", "", "");
            if ready.starts_with("HTTP/1.1 503") {
                break served.reply("POST", "/v1/completions", "", &body(0, 1));
            }
            assert!(ended.elapsed() < Duration::from_secs(60), "{ready}");
        };
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: 30\r\n"), "{refused}");
        let texts: Vec<String> = streams.into_iter().map(|stream| streamed_text(&rest(stream))).collect();
        if round == 0 {
            expected = texts[..8].to_vec();
        }
        texts.iter().enumerate().for_each(|(seed, text)| assert_eq!(text, &expected[seed % 8], "{round}"));
        assert_eq!(served.end(), (Some(0), String::new()), "{round}");
    }
}

#[test]
fn sigterm_finishes_64_streams_and_refuses_new_ones() {
    terminated_under_streams(2);
}

#[test]
#[ignore = "takes minutes"]
fn sigterm_finishes_64_streams_100_times() {
    terminated_under_streams(100);
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let mut served = serve(&["--max-length", "512"], &[]);
    let body =
        json!({"prompt": "Once", "max_tokens": 500, "ignore_eos": true, "n": 64, "stream": true}).to_string();
    let mut stream = served.send("POST", "/v1/completions", "", &body);
    assert!(stream.read(&mut [0; 16]).unwrap() > 0);
    served.signal("-TERM");
    while !served.reply("GET", "/ready", "", "").starts_with("HTTP/1.1 503") {}
    served.signal("-TERM");
    assert_eq!(served.child.wait().unwrap().code(), Some(143));
}

#[test]
fn the_unit_of_systemd_starts_a_server() {
    let unit = std::fs::read_to_string(testdata::repository().join("deploy/peri.service")).unwrap();
    let start =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/peri serve ")).unwrap();
    let folder = Folder::new("serve-unit");
    let keys = folder.file("keys", "");
    let start = start.replace("/etc/peri/keys", &keys).replace("--port 8000", "");
    let mut served = serve(&start.split_whitespace().collect::<Vec<_>>(), &[]);
    served.signal("-TERM");
    let (code, log) = served.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{log}");

    let text = unit.replace("/usr/local/bin/peri", env!("CARGO_BIN_EXE_peri"));
    let file = folder.file("peri.service", text);
    match Command::new("systemd-analyze").args(["verify", "--man=no", &file]).output() {
        Ok(output) => {
            let problems = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!problems.contains("peri.service"), "{problems}");
        }
        Err(error) => testdata::skip(&format!("systemd-analyze: {error}")),
    }
}

#[test]
fn the_image_starts_a_server_and_probes_it() {
    let image = std::fs::read_to_string(testdata::repository().join("deploy/Containerfile")).unwrap();
    let words = |start: &str| -> Vec<String> {
        let line = image.lines().rfind(|line| line.contains(start)).unwrap();
        serde_json::from_str(&line[line.find('[').unwrap()..]).unwrap()
    };
    let (start, probe) = (words("CMD [\"serve\""), words("HEALTHCHECK"));
    let start: Vec<&str> = start.iter().skip(1).map(String::as_str).collect();
    let mut served = serve(&start, &[("PERI_API_KEY", "secret")]);
    let port = served.address.rsplit(':').next().unwrap().to_string();
    let probe: Vec<&str> = probe.iter().skip(1).map(String::as_str).chain(["--port", &port]).collect();
    assert_eq!(peri(&probe).code, Some(0), "it needs no key");
    served.signal("-TERM");
    assert_eq!(served.end().0, Some(0));
    let gone = peri(&probe);
    assert!(
        gone.code == Some(1) && gone.stderr.contains("no server answers at 127.0.0.1:"),
        "{}",
        gone.stderr
    );
}

/// Whether the example for Kubernetes has flags and probes of the server. Its arguments are a list as JSON writes it.
/// `tests/clients/test_deploy.py` reads the whole file.
#[test]
fn the_example_for_kubernetes_starts_a_server_that_its_probes_find_ready() {
    let path = testdata::repository().join("deploy/kubernetes.yaml");
    let example = std::fs::read_to_string(&path).unwrap();
    let line = example.lines().find_map(|line| line.trim().strip_prefix("args: ")).unwrap();
    let words: Vec<String> = serde_json::from_str(line).unwrap();
    let folder = Folder::new("serve-kubernetes");
    let key = peri(&["key", "alice", "--key-file", &folder.path().join("keys").display().to_string()]);
    assert_eq!(key.code, Some(0), "{}", key.stderr);
    let keys = folder.path().join("keys").display().to_string();
    let is_kept = |word: &&str| !matches!(*word, "serve" | "Qwen/Qwen3-0.6B-GGUF:q8_0" | "--port" | "8000");
    let words = words.iter().map(String::as_str).filter(is_kept);
    let words: Vec<&str> = words.map(|word| if word == "/etc/peri/keys" { &keys } else { word }).collect();
    let mut served = serve(&words, &[]);
    let probes: Vec<&str> = example
        .lines()
        .filter_map(|line| line.trim().strip_prefix("httpGet: {path: "))
        .filter_map(|rest| rest.split(',').next())
        .collect();
    assert_eq!(probes, ["/ready", "/ready", "/live"]);
    for probe in probes {
        assert!(served.reply("GET", probe, "", "").starts_with("HTTP/1.1 200"), "{probe}");
    }
    served.signal("-TERM");
    assert_eq!(served.end().0, Some(0));
}

/// The server notifies systemd when it is ready, while it lives, and when it ends.
#[test]
fn systemd_hears_when_the_server_is_ready_lives_and_ends() {
    let folder = Folder::new("serve-notify");
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let path = path.display().to_string();
    let mut served = serve(&[], &[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "300000")]);
    let heard = || {
        let mut text = [0; 64];
        let bytes = socket.recv(&mut text).unwrap();
        String::from_utf8(text[..bytes].to_vec()).unwrap()
    };
    let mut first = [heard(), heard()];
    // A slow start is heard of between two signs of life.
    while !first.iter().any(|message| message == "READY=1") {
        first[0] = heard();
    }
    while heard() != "WATCHDOG=1" {}
    served.signal("-TERM");
    while heard() != "STOPPING=1" {}
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn a_made_key_lets_its_client_in_and_its_line_names_no_secret() {
    let folder = Folder::new("serve-key");
    let file = folder.file("keys", "# keys");
    let made = peri(&["key", "alice", "--scopes", "infer,metrics", "--key-file", &file, "--json"]).text();
    let made: Value = serde_json::from_str(&made).unwrap();
    let (key, line) = (made["key"].as_str().unwrap(), made["line"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("# keys\n{line}\n"));
    assert!(line.starts_with("alice:infer,metrics:") && !line.contains(key), "{line}");
    let mut served = serve(&["--key-file", &file], &[]);
    let status = |path: &str, key: &str| {
        served.reply("GET", path, &format!("x-api-key: {key}\r\n"), "")[9..12].to_string()
    };
    assert_eq!(status("/v1/models", key), "200");
    assert_eq!(status("/metrics", key), "200");
    assert_eq!(status("/admin/requests", key), "403");
    assert_eq!(status("/v1/models", "peri-other"), "401");
    served.signal("-TERM");
    served.end();
    let plain = peri(&["key", "bob"]).text();
    assert!(plain.contains("\n  peri-") && plain.contains("\n  bob:infer:"), "{plain}");
    let limits = ["--requests-per-minute", "20", "--tokens-per-minute", "9", "--concurrent-requests", "2"];
    let limited = peri(&[&["key", "bob", "--json"][..], &limits].concat()).text();
    let limited: Value = serde_json::from_str(&limited).unwrap();
    let line = limited["line"].as_str().unwrap();
    assert!(line.ends_with(":requests_per_minute=20,tokens_per_minute=9,concurrent_requests=2"), "{line}");
    for (arguments, part) in [
        (&["key", "a b"][..], "the name has to be"),
        (&["key", "alice", "--scopes", "root"], "unknown scope: \"root\""),
        (&["key", "alice", "--requests-per-minute", "0"], "0 is not in 1.."),
        (&["key", "alice", "--key-file", "/nothing/keys"], "cannot write the key to /nothing/keys"),
    ] {
        let outcome = peri(arguments);
        assert!(outcome.code != Some(0) && outcome.stderr.contains(part), "{}", outcome.stderr);
    }
}

#[test]
fn aliases_templates_and_sampling_of_flags_hold_for_requests_that_do_not_say() {
    let folder = Folder::new("serve-flags");
    let template = folder.file("template.jinja", "{{ messages[0].content }} upon a time");
    let flags = ["--alias", "gpt-4o", "--alias", "default", "--template", &template, "--temperature", "0"];
    let mut served = serve(&flags, &[]);
    let post = |path: &str, body: &Value| {
        let reply = served.reply("POST", path, "", &body.to_string());
        serde_json::from_str::<Value>(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    let messages = json!([{"role": "user", "content": "Once"}]);
    for model in ["gpt-4o", "default", "storyteller"] {
        let rendered = post("/apply-template", &json!({"model": model, "messages": messages}));
        assert_eq!(rendered["prompt"], "Once upon a time", "{model}");
    }
    let answer = |temperature: Option<f64>| {
        let body =
            json!({"prompt": "Once", "max_tokens": 24, "ignore_eos": true, "temperature": temperature});
        post("/v1/completions", &body)["choices"][0]["text"].clone()
    };
    assert_eq!(answer(None), answer(Some(0.0)));
    served.signal("-TERM");
    served.end();

    let file = folder.file(
        "serve.toml",
        format!("[[model]]\npath = \"storyteller\"\ntemplate = \"{template}\"\ntemperature = 0.0\n"),
    );
    let mut served = serve(&["--config", &file], &[]);
    let body = json!({"messages": messages}).to_string();
    assert!(served.reply("POST", "/apply-template", "", &body).contains("Once upon a time"));
    served.signal("-TERM");
    served.end();

    let wrong = folder.file("wrong.toml", "[[model]]\npath = \"storyteller\"\ntemperature = -1\n");
    for (arguments, part) in [
        (&["--template", "/nothing"][..], "--template /nothing: "),
        (&["--temperature", "-1"], "--temperature"),
        (&["--config", &wrong], "temperature: give 0 for greedy"),
    ] {
        let outcome = peri(&[&["serve", "--port", "0", "--quiet"], arguments].concat());
        assert!(outcome.code != Some(0) && outcome.stderr.contains(part), "{}", outcome.stderr);
    }
}

/// Fault F12: a reader of the log that takes nothing holds up neither requests nor the end.
#[test]
fn a_full_log_holds_up_neither_requests_nor_the_end() {
    let mut served = serve(&["--drain-timeout", "0.2", "--max-length", "512"], &[]);
    // More lines than a pipe holds.
    for _ in 0..600 {
        assert!(served.reply("GET", "/ready", "", "").starts_with("HTTP/1.1 200"));
    }
    let body =
        json!({"prompt": "Once", "max_tokens": 500, "ignore_eos": true, "n": 64, "stream": true}).to_string();
    let mut stream = served.send("POST", "/v1/completions", "", &body);
    assert!(stream.read(&mut [0; 16]).unwrap() > 0);
    served.signal("-TERM");
    let end = rest(stream);
    assert!(end.contains("data: [DONE]") || end.contains("the server is shutting down"), "{end}");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

/// A control group with a quota, if this process may make one.
#[cfg(target_os = "linux")]
struct CpuGroup(PathBuf);

#[cfg(target_os = "linux")]
impl CpuGroup {
    fn new(percent: usize) -> Option<CpuGroup> {
        // Microseconds of each 100,000.
        let time = percent * 1000;
        let versions = [
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", time.to_string()),
            ("/sys/fs/cgroup", "cpu.max", format!("{time} 100000")),
        ];
        versions.into_iter().filter(|(root, ..)| Path::new(root).join("cgroup.procs").exists()).find_map(
            |(root, file, quota)| {
                let group = CpuGroup(Path::new(root).join(format!("peri-test-{}", std::process::id())));
                std::fs::create_dir(&group.0).ok()?;
                std::fs::write(group.0.join(file), quota).ok().map(|()| group)
            },
        )
    }
}

#[cfg(target_os = "linux")]
impl Drop for CpuGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Fault F14: a server has as many threads as it may use cores, and gives the same answers with any number.
#[cfg(target_os = "linux")]
#[test]
fn threads_follow_affinity_and_quota_and_change_no_answer() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let check = |set_up: &str, threads: usize| {
        let script = format!(r#"{set_up}exec "$0" serve --json --quiet --port 0"#);
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_peri")]);
        let mut served = Served::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        assert_eq!(served.threads, threads as u64, "{set_up}");
        let text = streamed_text(&served.reply("POST", "/v1/completions", "", &story()));
        served.signal("-TERM");
        assert_eq!(served.end().0, Some(0));
        text
    };
    let text = check("", cores);
    let first = "taskset -cp $(taskset -cp $$ | sed 's/.*: *\\([0-9]*\\).*/\\1/') $$ >&2 && ";
    assert_eq!(check(first, 1), text);
    for percent in [50, 160, 200, 6400] {
        let Some(group) = CpuGroup::new(percent) else { continue };
        let enter = format!("echo $$ > {}/cgroup.procs && ", group.0.display());
        assert_eq!(check(&enter, (percent / 100).clamp(1, cores)), text, "{percent} %");
    }
}

/// Fault F17: a model that leaves gives its memory back to the system, and not to the allocator alone.
#[cfg(target_os = "linux")]
#[test]
fn memory_of_a_model_that_leaves_goes_back_to_the_system() {
    let served = serve(&["--lazy", "--log-format", "off"], &[]);
    let memory = || {
        let facts = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", served.child.id())).unwrap();
        let line = facts.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
        line.trim().split(' ').next().unwrap().parse::<usize>().unwrap()
    };
    let base = memory();
    let [mut used, mut left] = [0, 0];
    for _ in 0..3 {
        let body = json!({"prompt": "Once", "max_tokens": 200, "ignore_eos": true, "n": 64}).to_string();
        assert!(served.reply("POST", "/v1/completions", "", &body).starts_with("HTTP/1.1 200"));
        used = memory();
        served.reply("POST", "/admin/unload", "", r#"{"model": "storyteller"}"#);
        while !served.reply("GET", "/v1/models/storyteller", "", "").contains(r#""state":"absent""#) {}
        left = memory();
    }
    assert!(left < base.midpoint(used), "{left} KiB are left of {used}, {base} before");
}

/// A stream of some tokens, which all servers answer alike.
fn story() -> String {
    json!({"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": true, "seed": 5, "stream": true})
        .to_string()
}

/// Fault F12: a log without a reader, and descriptors that are closed when the server starts.
#[test]
fn a_server_outlives_its_standard_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let script = [r#"exec "$0" "$@" 2>&- <&-"#, env!("CARGO_BIN_EXE_peri")];
    let mut closed = Command::new("sh");
    closed.arg("-c").args(script).args(server(&[]).get_args()).stdout(Stdio::piped());
    for command in [server(&[]).stderr(writer), &mut closed] {
        let mut served = Served::start(command);
        for _ in 0..5 {
            streamed_text(&served.reply("POST", "/v1/completions", "", &story()));
        }
        served.signal("-TERM");
        assert_eq!(served.end().0, Some(0));
    }
}

/// Fault F12: the time of day changes by a day, forwards or backwards, each time it is asked for.
#[cfg(target_os = "linux")]
#[test]
fn a_clock_that_jumps_ends_no_request() {
    let folder = Folder::new("serve-clock");
    let Some(library) = crate::faults::library(&folder) else { return };
    let library = library.display().to_string();
    let texts = |variables: &[(&str, &str)]| {
        let mut served = serve(&["--request-timeout", "60", "--log-format", "json"], variables);
        let streams: Vec<TcpStream> =
            (0..16).map(|_| served.send("POST", "/v1/completions", "", &story())).collect();
        let texts: Vec<String> = streams.into_iter().map(|stream| streamed_text(&rest(stream))).collect();
        served.signal("-TERM");
        let (code, log) = served.end();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let seconds: Vec<f64> = lines.filter_map(|line| line["seconds"].as_f64()).collect();
        assert_eq!((code, seconds.len()), (Some(0), 16), "{log}");
        assert!(seconds.iter().all(|seconds| *seconds < 60.0), "{log}");
        texts
    };
    assert_eq!(texts(&[("LD_PRELOAD", &library), ("CLOCK_JUMPS", "1")]), texts(&[]));
}
