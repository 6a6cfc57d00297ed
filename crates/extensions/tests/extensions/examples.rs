//! The examples of the repository build and run.

use perihelion_extensions::{Access, Argument, Array, ArrayMut, Guards, Library, Operand};
use tensor::{DType, Shape, Tensor};

use crate::{call, compiled, compiled_c, compiler, numbers, read, repository, statistics, threads};

#[test]
fn a_single_source_runs_from_four_threads() {
    let Some(library) = compiled(&repository().join("examples/extensions/leaky_relu.rs")) else { return };
    assert_eq!((library.name(), library.version(), library.ops().len()), ("leaky_relu", "1.0", 1));
    assert_eq!(library.digest().len(), 64);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let library = library.clone();
            scope.spawn(move || {
                for call_number in 0..100 {
                    let size = 1 + (thread * 31 + call_number) % 17;
                    let x: Vec<f32> = (0..size).map(|i| i as f32 - 3.0).collect();
                    let slope = [("slope", Argument::Float(0.5))];
                    let tensor = Tensor::from_slice([size], &x);
                    let y = call(&library, "leaky_relu", &slope, &[&tensor], (DType::F32, &[size])).unwrap();
                    let expected: Vec<f32> = x.iter().map(|&x| if x > 0.0 { x } else { 0.5 * x }).collect();
                    assert_eq!(numbers::<f32>(&y), expected);
                }
            });
        }
    });
}

#[test]
fn data_may_start_anywhere() {
    let Some(library) = compiled(&repository().join("examples/extensions/leaky_relu.rs")) else { return };
    let bytes: Vec<u8> =
        [0u8; 3].into_iter().chain([1f32, -2.0].into_iter().flat_map(f32::to_le_bytes)).collect();
    let mut room = [0; 9];
    for (guards, at) in [(Guards::Off, 0), (Guards::Off, 1), (Guards::On, 1)] {
        let x = Array { dtype: DType::F32, shape: Shape::new(&[2]), bytes: &bytes[3..] };
        let y = ArrayMut { dtype: DType::F32, shape: Shape::new(&[2]), bytes: &mut room[at..][..8] };
        let op = library.op("leaky_relu").unwrap();
        op.run(&[], &mut [Operand::Read(x)], &mut [y], &threads, guards).unwrap();
        assert_eq!(numbers::<f32>(&room[at..][..8]), [1.0, -0.02]);
    }
}

#[test]
fn a_package_crate_has_results_buffers_and_threads() {
    let Some(compiler) = compiler() else { return };
    let library = Library::open(statistics(), &compiler).unwrap();
    let x = Tensor::from_slice([2, 2], &[3f32, 4.0, 0.0, -2.0]);
    let eps = [("eps", Argument::Float(0.0))];
    let y = call(&library, "l2_normalize", &eps, &[&x], (DType::F32, &[2, 2])).unwrap();
    assert_eq!(numbers::<f32>(&y), [0.6, 0.8, 0.0, -1.0]);
    let y = call(&library, "mean_of", &[], &[&x, &x, &x], (DType::F32, &[2, 2])).unwrap();
    assert_eq!(numbers::<f32>(&y), [3.0, 4.0, 0.0, -2.0]);

    let (mut least, mut greatest, mut places) = ([0; 8], [0; 8], [0; 16]);
    let array = |dtype, bytes| ArrayMut { dtype, shape: Shape::new(&[2]), bytes };
    let results = &mut [
        array(DType::F32, &mut least[..]),
        array(DType::F32, &mut greatest[..]),
        array(DType::I64, &mut places[..]),
    ];
    let range = library.op("row_range").unwrap();
    range.run(&[], &mut [read(&x)], results, &threads, Guards::On).unwrap();
    assert_eq!((numbers(&least), numbers(&greatest)), (vec![3f32, -2.0], vec![4f32, 0.0]));
    assert_eq!(numbers::<i64>(&places), [1, 0]);

    let op = library.op("moving_mean").unwrap();
    assert_eq!(op.signature().operands[0].access, Access::Write);
    let x = Tensor::from_slice([2], &[4f32, 8.0]);
    for guards in [Guards::Off, Guards::On] {
        let mut mean: Vec<f32> = vec![0.0, 0.0];
        for expected in [[2.0, 4.0], [3.0, 6.0]] {
            let bytes = bytemuck::cast_slice_mut(&mut mean);
            let mean_array = ArrayMut { dtype: DType::F32, shape: Shape::new(&[2]), bytes };
            let operands = &mut [Operand::Write(mean_array), read(&x)];
            op.run(&[("rate".to_string(), Argument::Float(0.5))], operands, &mut [], &threads, guards)
                .unwrap();
            assert_eq!(mean, expected);
        }
    }
}

#[test]
fn c_speaks_the_same_abi() {
    let source = repository().join("examples/extensions/hash_buckets.c");
    let (Some(path), Some(compiler)) = (compiled_c("hash_buckets", &source), compiler()) else { return };
    let library = Library::open(path, &compiler).unwrap();
    let ids = Tensor::from_slice([3], &[0u32, 1, 7]);
    let run = |buckets| {
        let argument = [("buckets", Argument::Int(buckets))];
        call(&library, "hash_buckets", &argument, &[&ids], (DType::I64, &[3]))
    };
    let hash = |id: u32| i64::from(id.wrapping_mul(2_654_435_761)) % 100;
    assert_eq!(numbers::<i64>(&run(100).unwrap()), [hash(0), hash(1), hash(7)]);
    let message = "`hash_buckets` of hash_buckets 1.0: `buckets` must be positive";
    assert_eq!(run(0).unwrap_err(), message);
    let stated = call(&library, "hash_buckets", &[], &[&ids], (DType::I32, &[3])).unwrap_err();
    let message = "`hash_buckets` of hash_buckets 1.0: result 0 is stated as i32[3], but it makes i64[3]";
    assert_eq!(stated, message);
}
