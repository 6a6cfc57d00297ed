//! Pickles and their values, and pickles that are refused.

use super::*;

fn problem(pickle: &[u8]) -> String {
    match Pickle::read(pickle).expect_err("a broken pickle") {
        Problem::Malformed(what) | Problem::Unsupported(what) => what,
        Problem::Refused(global) => format!("refused {global}"),
        Problem::Memory(error) => error.to_string(),
    }
}

#[test]
fn values_come_out_as_python_put_them_in() {
    // {"a": (1, 300, -2), "b": [None, True, 0.5], "c": OrderedDict(x=2**40)}
    let pickle = Pickle::read(
        b"\x80\x02}q\0(X\x01\0\0\0aK\x01M\x2c\x01J\xfe\xff\xff\xff\x87X\x01\0\0\0b](N\x88G\x3f\xe0\0\0\0\0\0\0e\
          X\x01\0\0\0cccollections\nOrderedDict\n)RX\x01\0\0\0x\x8a\x06\0\0\0\0\0\x01su.rest",
    )
    .unwrap();
    let dict = pickle.dict(pickle.root).unwrap();
    assert_eq!(dict.iter().map(|pair| pickle.text(pair.0).unwrap()).collect::<String>(), "abc");
    let tuple: Vec<_> =
        pickle.tuple(dict[0].1).unwrap().iter().map(|&v| pickle.integer(v).unwrap()).collect();
    assert_eq!(tuple, [1, 300, -2]);
    let list = pickle.list(dict[1].1).unwrap();
    assert_eq!((list[0], list[1], pickle.float(list[2])), (Value::None, Value::Bool(true), Some(0.5)));
    let inner = pickle.dict(dict[2].1).unwrap();
    assert_eq!(pickle.integer(inner[0].1), Some(1 << 40));
    assert_eq!(pickle.source[pickle.len..], *b"rest");
}

#[test]
fn objects_other_than_tensors_are_refused() {
    assert_eq!(problem(b"cposix\nsystem\n."), "refused posix.system");
    assert_eq!(problem(b"\x8c\x08builtins\x8c\x04eval\x93."), "refused builtins.eval");
    assert_eq!(problem(b"c__builtin__\neval\n."), "refused __builtin__.eval");
    assert!(problem(b"(S'ls'\nios\nsystem\n.").contains("opcode 0x53"));
}

#[test]
fn broken_programs_are_errors() {
    assert!(problem(b"").contains("ends at byte 0"));
    assert!(problem(b".").contains("not there"));
    assert!(problem(b"N").contains("ends at byte 1"));
    assert!(problem(b"R.").contains("not there"));
    assert!(problem(b"(N\x86.").contains("takes 2 values"));
    assert!(problem(b"N(R.").contains("not there"));
    assert!(problem(b"Nt.").contains("no mark"));
    assert!(problem(b"NNa.").contains("other than a list"));
    assert!(problem(b"}(Nu.").contains("without a value"));
    assert!(problem(b"h\x05.").contains("memo entry 5"));
    assert!(problem(b"Nr\xff\xff\xff\xff.").contains("memo entry"));
    assert!(problem(b"X\xff\xff\xff\x7fabc").contains("2147483647 bytes are wanted"));
    assert!(problem(b"NN\x85R.").contains("calls something"));
    assert!(problem(&[b'('; 5000]).contains("nested"));
    assert!(problem(&[b'N'; 50_000]).contains("at a time"));
    assert!(problem(&[b"N".as_slice(), &[0x85; 50_000]].concat()).contains("makes"));
    assert!(problem(b"\x80\x01N.").contains("protocol 1"));
}

#[test]
fn a_list_may_hold_itself() {
    let pickle = Pickle::read(b"]q\0h\0a.").unwrap();
    assert_eq!(pickle.list(pickle.root), Some(&[pickle.root][..]));
}
