//! The server's file of settings, and its models.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::{Folder, command, peri, storyteller};

/// A server that ends with its test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        let mut child = command(&[&["serve"], arguments].concat()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut said = Vec::new();
        let address = lines.find_map(|line| {
            said.push(line.clone());
            line.strip_prefix("listening on http://").map(str::to_string)
        });
        // Later lines are dropped.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, address: address.unwrap_or_else(|| panic!("{said:?}")) }
    }

    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// The ids of the models, with a field of each.
    fn models(&self, pointer: &str) -> Vec<(String, Value)> {
        let models = self.get("/v1/models")["data"].as_array().unwrap().clone();
        let pair = |model: Value| {
            (model["id"].as_str().unwrap().to_string(), model.pointer(pointer).unwrap().clone())
        };
        models.into_iter().map(pair).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_file_sets_the_server_and_its_models() {
    let folder = Folder::new("serve-file");
    let settings = format!(
        "max_length = 128\n\
         [server]\nport = 0\nlazy = true\nallowed_host = ['one', 'two']\n\
         [[model]]\npath = '{}'\nid = 'first'\naliases = ['gpt-4o']\nmax_length = 64\npin = true\n\
         [[model]]\npath = 'storyteller'\nkeep_alive = '10m'\n",
        storyteller()
    );
    let file = folder.file("peri.toml", settings);
    let lengths = |server: &Server| server.models("/max_model_len");
    let server = Server::start(&["--config", &file]);
    assert_eq!(lengths(&server), [("first".to_string(), 64.into()), ("storyteller".to_string(), 128.into())]);
    assert_eq!(server.models("/meta/state")[0].1, "absent");
    assert_eq!(
        server.models("/meta/pinned"),
        [("first".to_string(), true.into()), ("storyteller".to_string(), false.into())]
    );
    assert_eq!(server.get("/v1/models/gpt-4o")["id"], "first");
    let server = Server::start(&["--config", &file, "--max-length", "32"]);
    assert_eq!(lengths(&server), [("first".to_string(), 32.into()), ("storyteller".to_string(), 32.into())]);
}

#[test]
fn a_folder_of_models_is_served_without_those_that_are_damaged() {
    let folder = Folder::new("serve-folder");
    let model = std::fs::read(storyteller()).unwrap();
    folder.file("one.gguf", &model);
    folder.file("two.gguf", &model);
    folder.file("broken.gguf", "GGUF?");
    folder.file("notes.txt", "nothing");
    let path = folder.path().display().to_string();
    let server = Server::start(&["--models-dir", &path, "--port", "0"]);
    assert_eq!(
        server.models("/meta/state"),
        [("one".to_string(), "absent".into()), ("two".to_string(), "absent".into())]
    );
}

#[test]
fn wrong_settings_are_refused_with_the_place() {
    let folder = Folder::new("serve-wrong");
    let check = |settings: &str, problem: &str| {
        let file = folder.file("peri.toml", settings);
        let outcome = peri(&["serve", "--config", &file]);
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(&format!("peri.toml:{problem}")), "{}", outcome.stderr);
    };
    check("[server]\nprot = 1", "2:1: there is no setting `prot`: did you mean `port`?");
    check("[server]\nport = 'x'", "2:1: invalid value 'x' for '--port <N>'");
    check("[server]\nmax_length = 5", "2:1: `max_length` is a setting of models: write it before [server]");
    check("[serve]\nport = 1", "1:2: there is no table `serve`: did you mean `server`?");
    check("[[model]]\npaht = 'x'", "2:1: there is no setting `paht`: did you mean `path`?");
    check(
        "[[model]]\npath = 'storyteller'\nmax_lenght = 5",
        "3:1: there is no setting `max_lenght`: did you mean `max_length`?",
    );
    check("[[model]]\npath = 'storyteller'\nmax_length = 'x'", "3:1: max_length is \"x\"");
    check("[[model]]\nid = 'x'", "2:1: the model has no `path`");
    check("[[model]]\npath = 'storyteller'\nkeep_alive = 'soon'", "3:1: keep_alive: `soon`: give seconds");
    check("[[model]]\npath = 'storyteller'\nkind = 'chat'", "3:1: kind: give \"text\", \"embedding\" or");
}
