//! The thread that owns the memory, and the commands it follows one after another.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use engine::Error;
use tensor::AlignedBytes;

/// What the thread is asked to do.
pub(crate) enum Command {
    /// Take so many bytes.
    Allocate(u64, usize),
    /// Give memory back.
    Free(u64),
    /// Overwrite parts.
    Write(u64, Vec<(usize, Vec<u8>)>),
    /// Send a part.
    Read(u64, usize, usize, Sender<Vec<u8>>),
    /// Copy parts of one memory into another.
    Copy(u64, u64, Vec<[usize; 3]>),
    /// Compute.
    Run(Arc<dyn Work>),
    /// Say that all is done.
    Wait(Sender<()>),
}

/// What the thread computes.
pub(crate) trait Work: Send + Sync {
    /// Computes it.
    fn run(&self, memories: &mut Memories) -> Result<(), String>;
}

/// The thread's memory, by number.
pub(crate) type Memories = HashMap<u64, AlignedBytes>;

/// Asks the thread.
pub(crate) struct Queue {
    commands: Mutex<Sender<Command>>,
    /// The first failure; nothing works after it.
    failure: Arc<Mutex<Option<String>>>,
}

impl Queue {
    /// A thread that waits between commands as a seed says.
    pub(crate) fn start(seed: u64) -> Queue {
        let (commands, received) = channel();
        let failure = Arc::new(Mutex::new(None));
        let told = Arc::clone(&failure);
        thread::spawn(move || {
            let worker = Worker { memories: Memories::new(), failure: told, random: seed };
            worker.work(&received);
        });
        Queue { commands: Mutex::new(commands), failure }
    }

    pub(crate) fn ask(&self, command: Command) -> Result<(), Error> {
        self.check()?;
        self.send(command)
    }

    /// Asks for an answer, and waits for it.
    pub(crate) fn answer<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Result<T, Error> {
        let (answer, received) = channel();
        self.send(command(answer))?;
        let answer = received.recv();
        self.check()?;
        answer.map_err(|_| lost("the device has stopped"))
    }

    fn send(&self, command: Command) -> Result<(), Error> {
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.send(command).map_err(|_| lost("the device has stopped"))
    }

    fn check(&self) -> Result<(), Error> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map_or(Ok(()), |message| Err(lost(message)))
    }
}

fn lost(message: &str) -> Error {
    tensor::Error::Device(message.to_string()).into()
}

struct Worker {
    memories: Memories,
    failure: Arc<Mutex<Option<String>>>,
    random: u64,
}

impl Worker {
    fn work(mut self, commands: &Receiver<Command>) {
        for command in commands {
            self.delay();
            if let Err(message) = self.follow(command) {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(message);
            }
        }
    }

    /// Nothing most of the time, else up to 60 microseconds.
    fn delay(&mut self) {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let microseconds = self.random >> 56;
        if microseconds < 60 {
            thread::sleep(Duration::from_micros(microseconds));
        }
    }

    fn follow(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Allocate(number, bytes) => {
                let memory = AlignedBytes::try_zeroed(bytes).map_err(|error| error.to_string())?;
                self.memories.insert(number, memory);
            }
            Command::Free(number) => {
                self.memories.remove(&number).ok_or_else(|| missing(number))?;
            }
            Command::Write(number, parts) => {
                let memory = self.memories.get_mut(&number).ok_or_else(|| missing(number))?;
                for (start, bytes) in parts {
                    part_mut(memory, start, bytes.len())?.copy_from_slice(&bytes);
                }
            }
            Command::Read(number, start, len, answer) => {
                let memory = self.memories.get(&number).ok_or_else(|| missing(number))?;
                // Whoever asked may have given up.
                let _ = answer.send(part(memory, start, len)?.to_vec());
            }
            Command::Copy(from, to, parts) => {
                for [start, target, len] in parts {
                    let source = self.memories.get(&from).ok_or_else(|| missing(from))?;
                    let bytes = part(source, start, len)?.to_vec();
                    let memory = self.memories.get_mut(&to).ok_or_else(|| missing(to))?;
                    part_mut(memory, target, len)?.copy_from_slice(&bytes);
                }
            }
            Command::Run(work) => work.run(&mut self.memories)?,
            Command::Wait(answer) => {
                let _ = answer.send(());
            }
        }
        Ok(())
    }
}

pub(crate) fn missing(number: u64) -> String {
    format!("memory {number} is used after it was freed")
}

pub(crate) fn part(memory: &[u8], start: usize, len: usize) -> Result<&[u8], String> {
    let whole = memory.len();
    memory.get(start..start + len).ok_or_else(|| format!("{len} bytes from byte {start}, of {whole}"))
}

pub(crate) fn part_mut(memory: &mut [u8], start: usize, len: usize) -> Result<&mut [u8], String> {
    let whole = memory.len();
    memory.get_mut(start..start + len).ok_or_else(|| format!("{len} bytes from byte {start}, of {whole}"))
}
