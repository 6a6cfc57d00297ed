//! Which of the names there are was probably meant.

/// Names less alike than this are no mistyping of each other (Jaro and Winkler's measure, from 0 to 1).
const ALIKE: f64 = 0.75;

/// The name most like the one that was given, if any is like it. Case does not count.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    let mut best = (ALIKE, None);
    for name in names {
        let alike = strsim::jaro_winkler(&given, &name.to_lowercase());
        if alike > best.0 {
            best = (alike, Some(name));
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_recognized() {
        let names = ["float32", "bfloat16", "q4_0", "q4_k"];
        assert_eq!(nearest("bfloat", names), Some("bfloat16"));
        assert_eq!(nearest("Q4K", names), Some("q4_k"));
        assert_eq!(nearest("flaot32", names), Some("float32"));
        assert_eq!(nearest("int8", names), None);
        assert_eq!(nearest("", names), None);
    }
}
