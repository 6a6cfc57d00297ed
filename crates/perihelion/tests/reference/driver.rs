//! "Data and devices": buffers as models on the CPU read and write them.

use std::fs;

use perihelion::driver::{self, Buffer, Cpu, DType, Device, DeviceSpec, MapMode};
use perihelion::engine::ExecuteOptions;

use crate::support::{folder, message, parse, session};

#[test]
fn accelerators_that_do_not_exist_say_why() {
    let count = driver::accelerator_count();
    let absent = i32::try_from(count).unwrap();
    let error = driver::accelerator(absent).err().expect("counted from 0").to_string();
    let plural = if count == 1 { "" } else { "s" };
    let start = format!("gpu:{absent} is not available: found {count} accelerator{plural}; ");
    assert!(error.len() > start.len() && error.starts_with(&start), "{error}");
    let specs = driver::scan_available_devices();
    let devices = driver::load_devices(&specs).unwrap();
    assert_eq!(devices.iter().map(|device| device.spec()).collect::<Vec<_>>(), specs);
    assert!(devices.iter().all(|device| device.is_host() == (count == 0)));
}

#[test]
fn the_cpu_says_what_and_where_it_is() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let (cpu, one) = (driver::cpu(), Cpu::new(1));
    assert!((1..=cores).contains(&cpu.threads()));
    assert_eq!(one.threads(), 1);
    assert_eq!((cpu.name(), cpu.spec(), cpu.id(), cpu.is_host()), ("cpu", DeviceSpec::cpu(), 0, true));
    assert_eq!(cpu.target(), one.target(), "threads change no plan");
}

#[test]
fn models_read_and_write_views_of_buffers() {
    let graph = parse("graph g(%state: mut f32[2], %x: f32[2]) { store(%state, %x) %y = neg(%x) return %y }");
    let model = session().load(&graph, &()).unwrap();
    let (state, x) = (Buffer::zeros(DType::F32, [4]), Buffer::from_slice([4], &[1f32, 2.0, 3.0, 4.0]));
    let results = Buffer::zeros(DType::F32, [3]);
    let middle = |buffer: &Buffer| buffer.slice(&[(1..3).into()]).unwrap();
    let options = ExecuteOptions::default();
    model.execute_into(&[middle(&state), middle(&x)], &[middle(&results)], &options).unwrap();
    assert_eq!(state.to_vec::<f32>(), [0.0, 2.0, 3.0, 0.0]);
    assert_eq!(results.to_vec::<f32>(), [0.0, -2.0, -3.0]);
    assert!(middle(&state).shares_memory_with(&state));
    let backwards = x.slice(&[perihelion::driver::Index::ALL.step(-2)]).unwrap();
    assert_eq!(backwards.to_vec::<f32>(), [4.0, 2.0]);
    let strided = "input 1 'x': got strides [-2], expected a row-major buffer; .contiguous() makes one";
    assert_eq!(message(model.execute(&[middle(&state), backwards])), strided);
}

#[test]
fn a_buffer_has_one_writer_or_many_readers() {
    let graph = parse("graph g(%state: mut f32[2], %x: f32[2]) { store(%state, %x) return %x }");
    let model = session().load(&graph, &()).unwrap();
    let (state, x) = (Buffer::zeros(DType::F32, [2]), Buffer::from_slice([2], &[1f32, 2.0]));
    let call = |state: &Buffer| model.execute(&[state.clone(), x.clone()]);
    let (reader, another) = (state.read().unwrap(), state.read().unwrap());
    assert_eq!(message(call(&state)), "input 0 'state': the buffer is being read by another call");
    drop((reader, another));
    let same = "input 1 'x': the buffer is being written by another call";
    assert_eq!(message(model.execute(&[x.clone(), x.clone()])), same);
    let reading = x.read().unwrap();
    call(&state).unwrap();
    drop(reading);
    assert_eq!(state.to_vec::<f32>(), [1.0, 2.0]);
    assert_eq!(message(call(&state.read_only())), "input 0 'state': the buffer is read-only");
}

#[test]
fn mapped_files_are_inputs_and_change_only_if_mapped_for_writing() {
    let graph = parse(
        "graph g(%state: mut u8[2]) { %x = load(%state) %y = add(%x, %x) store(%state, %y) return %x }",
    );
    let model = session().load(&graph, &()).unwrap();
    let path = folder("mapped").join("bytes");
    for (mode, after) in [("c", [2, 3]), ("r", [2, 3]), ("r+", [4, 6])] {
        fs::write(&path, [0, 1, 2, 3, 4, 5]).unwrap();
        let buffer = Buffer::mmap(&path, DType::U8, [2], 2, mode.parse::<MapMode>().unwrap()).unwrap();
        let outputs = model.execute(std::slice::from_ref(&buffer)).unwrap();
        assert_eq!((outputs[0].to_vec::<u8>(), buffer.to_vec::<u8>()), (vec![2, 3], vec![4, 6]));
        assert_eq!(fs::read(&path).unwrap()[2..4], after, "{mode}");
    }
    let error = Buffer::mmap(&path, DType::F32, [2], 0, MapMode::Read).unwrap_err().to_string();
    assert!(error.ends_with(": 8 bytes from byte 0 on, in a file of 6 bytes"), "{error}");
}
