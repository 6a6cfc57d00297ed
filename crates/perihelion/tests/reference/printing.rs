//! "Printing": what models on the CPU print, in which style, and into which files.

use std::fs;

use perihelion::driver::{Buffer, DType, MapMode, load_max_buffer};
use perihelion::engine::{InferenceSession, Model, PrintOptions, PrintStyle};
use perihelion::graph::{Builder, Graph, Type, dims};

use crate::support::{Sink, folder, in_child, message, session};

/// Prints a vector `x`, and a buffer before and after it is doubled, with a text behind.
fn printing() -> Graph {
    let mut b = Builder::new("printing");
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    let state = b.input("state", Type::buffer(DType::F32, [1]));
    let before = b.load(state).unwrap();
    b.print(before, "before").unwrap();
    let doubled = b.add(before, before).unwrap();
    b.store(state, doubled).unwrap();
    let after = b.load(state).unwrap();
    b.print(after, "after").unwrap();
    b.print_text("done", "note").unwrap();
    b.print(x, "x").unwrap();
    b.finish(&[]).unwrap()
}

fn run(model: &Model, x: &[f32]) -> Result<(), String> {
    let inputs = [Buffer::from_slice([x.len()], x), Buffer::from_slice([1], &[2f32])];
    model.execute(&inputs).map(drop).map_err(|error| error.to_string())
}

fn compact(label: &str, values: &str, size: usize) -> String {
    format!("{label} = tensor([[{values}]], dtype=f32, shape=[{size}])\n")
}

#[test]
fn values_and_texts_print_in_the_order_of_the_graph() {
    let (session, sink) = (session(), Sink::default());
    session.set_print_sink(sink.clone());
    let model = session.load(&printing(), &()).unwrap();
    let state = compact("before", "2.0000", 1) + &compact("after", "4.0000", 1) + "note = done\n";
    for _ in 0..3 {
        run(&model, &[0.5, 1.0]).unwrap();
        assert_eq!(sink.take(), state.clone() + &compact("x", "0.5000, 1.0000", 2));
    }
}

#[test]
fn values_print_to_standard_output_unless_there_is_a_sink() {
    const TEST: &str = "printing::values_print_to_standard_output_unless_there_is_a_sink";
    let written = in_child(TEST, "output", &[], || {
        let session = InferenceSession::new([]).unwrap();
        run(&session.load(&printing(), &()).unwrap(), &[0.5, 1.0]).unwrap();
    });
    assert!(written.output.contains(&compact("x", "0.5000, 1.0000", 2)), "{}", written.output);
    assert!(written.output.contains("note = done\n"), "{}", written.output);
}

#[test]
fn print_options_hold_for_all_models_of_a_session_at_once() {
    let (session, sink) = (session(), Sink::default());
    session.set_print_sink(sink.clone());
    let models = [(); 2].map(|()| session.load(&printing(), &()).unwrap());
    let lines_of_x = |style: &str, precision: usize| {
        session.set_debug_print_options(style, precision, None).unwrap();
        let lines = models.each_ref().map(|model| {
            run(model, &[0.5, 1.0]).unwrap();
            sink.take().lines().last().unwrap_or_default().to_string()
        });
        assert_eq!(lines[0], lines[1]);
        lines[0].clone()
    };
    assert_eq!(lines_of_x("FULL", 2), "x = tensor<2xf32> [5.00e-01, 1.00e+00]");
    assert_eq!(lines_of_x("FULL", 5), "x = tensor<2xf32> [5.00000e-01, 1.00000e+00]");
    assert_eq!(lines_of_x("NONE", 6), "");
    assert_eq!(lines_of_x("COMPACT", 1) + "\n", compact("x", "0.5000, 1.0000", 2), "always four decimals");
    // Another session has its own.
    let usual = PrintOptions::default();
    assert_eq!((usual.style, usual.precision, &usual.output_directory), (PrintStyle::Compact, 6, &None));
    assert_eq!(self::session().debug_print_options(), usual);
}

#[test]
fn compact_cuts_long_axes_and_full_prints_all() {
    let (session, sink) = (session(), Sink::default());
    session.set_print_sink(sink.clone());
    let model = session.load(&printing(), &()).unwrap();
    let x_of = |style: &str| {
        session.set_debug_print_options(style, 2, None).unwrap();
        run(&model, &[1.12345; 20]).unwrap();
        sink.take().lines().last().unwrap().to_string()
    };
    let ends = "1.1235, 1.1235, 1.1235, ..., 1.1235, 1.1235, 1.1235";
    assert_eq!(x_of("COMPACT") + "\n", compact("x", ends, 20));
    assert_eq!(x_of("FULL"), format!("x = tensor<20xf32> [{}]", vec!["1.12e+00"; 20].join(", ")));
}

#[test]
fn binary_files_hold_the_bytes_alone() {
    let (session, folder) = (session(), folder("binary").join("made/later"));
    session.set_print_sink(Sink::default());
    session.set_debug_print_options("BINARY", 6, Some(&folder)).unwrap();
    let model = session.load(&printing(), &()).unwrap();
    assert!(!folder.exists(), "it is made with the first file");
    run(&model, &[0.5, 1.0]).unwrap();
    let bytes = [0.5f32.to_le_bytes(), 1f32.to_le_bytes()].concat();
    assert_eq!(fs::read(folder.join("x")).unwrap(), bytes);
    let mapped = Buffer::mmap(folder.join("x"), DType::F32, [2], 0, MapMode::Read).unwrap();
    assert_eq!(mapped.to_vec::<f32>(), [0.5, 1.0]);
    run(&model, &[4.0]).unwrap();
    assert_eq!(fs::read(folder.join("x")).unwrap(), 4f32.to_le_bytes(), "the last value stays");
}

#[test]
fn checkpoints_keep_dtype_shape_and_elements() {
    let (session, sink, folder) = (session(), Sink::default(), folder("checkpoint"));
    session.set_print_sink(sink.clone());
    session.set_debug_print_options(PrintStyle::BinaryMaxCheckpoint, 6, Some(&folder)).unwrap();
    run(&session.load(&printing(), &()).unwrap(), &[0.5, 1.0]).unwrap();
    assert!(!sink.take().contains("x = "), "only texts are printed");
    let loaded = load_max_buffer(folder.join("x.max")).unwrap();
    assert_eq!(
        (loaded.dtype(), loaded.shape().to_vec(), loaded.to_vec::<f32>()),
        (DType::F32, vec![2], vec![0.5, 1.0])
    );
    // The layout that tools read: a magic number, the lengths, and the elements from a multiple of 64 on.
    let bytes = fs::read(folder.join("x.max")).unwrap();
    assert_eq!(bytes[..8], [0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x2b, 0x2b, 0x93]);
    assert_eq!(bytes[64..], [0.5f32.to_le_bytes(), 1f32.to_le_bytes()].concat());
    // A file of several tensors is refused: 20 more bytes of metadata.
    let mut several = bytes;
    several[16] += 20;
    fs::write(folder.join("several.max"), several).unwrap();
    let error = load_max_buffer(folder.join("several.max")).unwrap_err().to_string();
    assert!(error.contains("files of several tensors are not read"), "{error}");
}

#[test]
fn binary_styles_need_a_directory() {
    let session = session();
    for style in ["BINARY", "BINARY_MAX_CHECKPOINT"] {
        let expected =
            format!("the output directory is ``, expected a directory, as the print style is {style}");
        assert_eq!(message(session.set_debug_print_options(style, 6, None)), expected);
    }
    assert_eq!(session.debug_print_options(), PrintOptions::default(), "a refused style changes nothing");
}

#[test]
fn labels_that_lead_out_of_the_directory_fail_the_call() {
    let (session, folder) = (session(), folder("labels"));
    let directory = folder.join("inside");
    session.set_debug_print_options("BINARY", 6, Some(&directory)).unwrap();
    for label in ["../up", "/root/up", ""] {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims!["n"]));
        b.print(x, label).unwrap();
        let model = session.load(&b.finish(&[x]).unwrap(), &()).unwrap();
        let error = message(model.execute(&[Buffer::from_slice([1], &[1f32])]));
        assert!(error.starts_with("step 0, print: "), "{error}");
    }
    assert!(!folder.join("up").exists());
}
