//! A compile cache that several processes share, and that they may die in at any instant.
//!
//! The writers are this very test program, started again with the folder in an environment variable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use graph::{Builder, Graph, Type};
use perihelion_engine::{Artifact, CompileCache, Device, InferenceSession, ReferenceDevice};
use tensor::{Buffer, DType, Tensor};

/// Names the folder to a writer.
const FOLDER: &str = "PERIHELION_TEST_CACHE";
/// How many graphs the writers compile in turn.
const GRAPHS: usize = 4;
/// Elements of each graph's constant: an entry takes many writes.
const ELEMENTS: usize = 1 << 16;

/// `x + number`, with a large constant.
fn graph(number: usize) -> Graph {
    let mut b = Builder::new("sum");
    let x = b.input("x", Type::new(DType::F32, [ELEMENTS]));
    let constant = b.constant(Tensor::from_slice([ELEMENTS], &vec![number as f32; ELEMENTS]));
    let y = b.add(x, constant).unwrap();
    b.finish(&[y]).unwrap()
}

fn session(folder: &Path) -> InferenceSession {
    let device = Arc::new(ReferenceDevice) as Arc<dyn Device>;
    InferenceSession::builder().device(device).compile_cache(CompileCache::at(folder)).build().unwrap()
}

/// Compiles a graph through the cache and checks what it computes.
fn check(folder: &Path, number: usize) {
    let model = session(folder).load(&graph(number), &()).unwrap();
    let y = model.execute(&[Buffer::zeros(DType::F32, [ELEMENTS])]).unwrap();
    assert!(y[0].to_vec::<f32>().iter().all(|&value| value == number as f32), "graph {number}");
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "mef")).collect()
}

/// An empty folder.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn start_writer(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "writer", "--nocapture"]).env(FOLDER, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// No test of its own: what the processes do that the tests below start. Compiles and forgets, over and over.
#[test]
fn writer() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let session = session(&folder);
    let graphs: Vec<Graph> = (0..GRAPHS).map(graph).collect();
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        for (number, graph) in graphs.iter().enumerate() {
            drop(session.compile(graph).unwrap());
            // So that it is written again. Another writer may have been quicker.
            let mut entries = entries(&folder);
            entries.sort();
            if let Some(entry) = entries.get(number % entries.len().max(1)) {
                let _ = fs::remove_file(entry);
            }
        }
    }
}

/// No test of its own: what the builds do that the test below starts.
#[test]
fn compiles_once() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    check(&folder, 0);
}

#[test]
fn another_build_of_a_program_compiles_for_itself() {
    let folder = folder("builds");
    let (own, other) = (std::env::current_exe().unwrap(), folder.join("other"));
    fs::copy(&own, &other).unwrap();
    for (program, count) in [(&own, 1), (&other, 2), (&own, 2), (&other, 2)] {
        let mut command = Command::new(program);
        let output = command.args(["--exact", "compiles_once"]).env(FOLDER, &folder).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(entries(&folder).len(), count, "{}", program.display());
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The time of an entry says when it was used last, so it is no sign of another content.
#[test]
fn a_model_outlives_other_uses_of_its_entry() {
    let folder = folder("used");
    let load = || session(&folder).load(&graph(1), &()).unwrap();
    drop(load());
    let model = load();
    for entry in entries(&folder) {
        let later = SystemTime::now() + Duration::from_secs(60);
        fs::File::options().write(true).open(entry).unwrap().set_modified(later).unwrap();
    }
    let y = model.execute(&[Buffer::zeros(DType::F32, [ELEMENTS])]).unwrap();
    assert_eq!(y[0].to_vec::<f32>()[0], 1.0);
    drop(model);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn writers_may_be_killed_at_any_instant() {
    let folder = folder("killed");
    let start = Instant::now();
    let (mut kills, mut unfinished) = (0, 0);
    while start.elapsed() < Duration::from_secs(3) {
        let mut writers = [start_writer(&folder), start_writer(&folder)];
        // Anywhere from the start of the process on, and ever further into its first rounds.
        let rounds = kills / 37;
        std::thread::sleep(Duration::from_micros(3_000 + 617 * (kills % 37) * (1 + rounds)));
        for writer in &mut writers {
            writer.kill().unwrap();
            writer.wait().unwrap();
        }
        kills += 1;
        for path in entries(&folder) {
            Artifact::open(&path).and_then(|entry| entry.verify()).unwrap();
        }
        check(&folder, kills as usize % GRAPHS);
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                unfinished += 1;
                fs::remove_file(path).unwrap();
            }
        }
    }
    println!("{kills} times two writers were killed, {unfinished} of them within a write");
    assert!(unfinished > 0, "no writer was killed within a write");
    (0..GRAPHS).for_each(|number| check(&folder, number));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn many_write_the_same_entry_at_once() {
    let folder = folder("shared");
    let mut writers = [start_writer(&folder), start_writer(&folder), start_writer(&folder)];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        std::thread::scope(|scope| {
            for number in 0..GRAPHS {
                let folder = &folder;
                scope.spawn(move || check(folder, number));
            }
        });
    }
    for writer in &mut writers {
        assert!(writer.try_wait().unwrap().is_none(), "a writer failed");
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}
