//! Which values convert to what, and what is said of those that do not.

use super::*;

fn sample() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert("count", 5u32);
    metadata.insert("minus", -1i8);
    metadata.insert("huge", u64::MAX);
    metadata.insert("eps", 1e-5f32);
    metadata.insert("wide", 0.5f64);
    metadata.insert("flag", true);
    metadata.insert("name", "storyteller");
    metadata.insert("broken", MetaValue::InvalidString(vec![b'a', 0xff]));
    metadata.insert("kinds", vec![1u8, 2, 255]);
    metadata.insert("signed", vec![1i32, -2]);
    metadata.insert("scores", vec![0.5f32, -1.0]);
    metadata.insert("tokens", ["a", "β"].into_iter().collect::<Strings>());
    metadata.insert("cut", [&b"a"[..], b"\xce"].into_iter().collect::<Strings>());
    metadata
}

#[test]
fn values_convert_where_they_fit() {
    let metadata = sample();
    assert_eq!(metadata.required::<u32>("count").unwrap(), 5);
    assert_eq!(metadata.required::<i64>("minus").unwrap(), -1);
    assert_eq!(metadata.required::<u64>("huge").unwrap(), u64::MAX);
    assert_eq!(metadata.required::<f32>("eps").unwrap(), 1e-5);
    assert_eq!(metadata.required::<f32>("wide").unwrap(), 0.5);
    assert!(metadata.required::<bool>("flag").unwrap());
    assert_eq!(metadata.str("name").unwrap(), "storyteller");
    assert_eq!(metadata.required::<Vec<i32>>("kinds").unwrap(), [1, 2, 255]);
    assert_eq!(metadata.required::<Vec<f32>>("scores").unwrap(), [0.5, -1.0]);
    assert_eq!(metadata.strings("tokens").unwrap(), ["a", "β"]);
    assert_eq!(metadata.required::<&Strings>("cut").unwrap().get(1).unwrap(), b"\xce");
    assert_eq!(metadata.optional::<u32>("absent").unwrap(), None);
    assert_eq!(metadata.iter().next().unwrap().0, "count");
}

#[test]
fn errors_name_key_expected_and_found() {
    fn check<T>(result: Result<T, Error>, message: &str) {
        assert_eq!(result.err().expect(message).to_string(), message);
    }
    let metadata = sample();
    check(metadata.required::<u32>("absent"), "metadata lacks `absent`, an integer (u32)");
    check(metadata.required::<u32>("minus"), "metadata `minus`: -1 is out of range for an integer (u32)");
    check(
        metadata.required::<i64>("huge"),
        "metadata `huge`: 18446744073709551615 is out of range for an integer (i64)",
    );
    check(
        metadata.usize("name"),
        "metadata `name`: expected an integer (usize), found string \"storyteller\"",
    );
    check(metadata.required::<u64>("eps"), "metadata `eps`: expected an integer (u64), found f32 1e-5");
    check(metadata.required::<f32>("count"), "metadata `count`: expected a number, found u32 5");
    check(metadata.required::<bool>("count"), "metadata `count`: expected a bool, found u32 5");
    check(metadata.str("flag"), "metadata `flag`: expected a string, found bool true");
    check(metadata.str("broken"), "metadata `broken`: not UTF-8: a\\xff");
    check(metadata.strings("cut"), "metadata `cut[1]`: not UTF-8: \\xce");
    check(
        metadata.required::<&Strings>("scores"),
        "metadata `scores`: expected an array of strings, found an array of 2 f32s",
    );
    check(
        metadata.required::<Vec<i32>>("tokens"),
        "metadata `tokens`: expected an array of integers (i32), found an array of 2 strings",
    );
    check(
        metadata.required::<Vec<i32>>("count"),
        "metadata `count`: expected an array of integers (i32), found u32 5",
    );
    check(
        metadata.required::<Vec<u32>>("signed"),
        "metadata `signed[1]`: -2 is out of range for an integer (u32)",
    );
    check(
        metadata.required::<Vec<f32>>("kinds"),
        "metadata `kinds`: expected an array of numbers, found an array of 3 u8s",
    );
    check(
        metadata.required::<Vec<bool>>("kinds"),
        "metadata `kinds`: expected an array of bools, found an array of 3 u8s",
    );
    check(metadata.optional::<u32>("flag"), "metadata `flag`: expected an integer (u32), found bool true");
}
