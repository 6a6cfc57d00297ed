//! Keywords of JSON Schema, each with values that answers may and may not be.

use serde_json::{Value, json};

use crate::constraint::tests::{accepts, bytes, schema};
use crate::constraint::{Constraint, GrammarCompiler};

fn check(value: Value, good: &[&str], bad: &[&str]) {
    let (compiler, constraint) = (GrammarCompiler::new(bytes()), schema(value));
    let accepts = |text: &str| accepts(&compiler, &constraint, text);
    let wrongly_refused: Vec<_> = good.iter().filter(|text| !accepts(text)).collect();
    let wrongly_accepted: Vec<_> = bad.iter().filter(|text| accepts(text)).collect();
    assert!(
        wrongly_refused.is_empty() && wrongly_accepted.is_empty(),
        "{constraint:?} refuses {wrongly_refused:?} and accepts {wrongly_accepted:?}"
    );
}

fn problem(value: Value) -> String {
    GrammarCompiler::new(bytes()).compile(&schema(value)).unwrap_err().to_string()
}

#[test]
fn keywords_and_formats_of_no_draft_are_annotations() {
    let plain = json!({
        "type": "object", "title": "T", "propertyOrder": 1, "markdownDescription": "M", "maxlength": 1,
        "discriminator": { "propertyName": "kind", "mapping": { "a": "#/no/such/place" } },
        "properties": {
            "a": { "type": "string", "format": "nanoid", "pattern": "^[a-z]{2}$", "nullable": true, "tsType": { "not": {} } },
            "b": { "type": "integer", "format": "int64", "x-order": 3 },
            "c": { "type": "string", "format": "path", "errorMessage": "E" },
        },
        "required": ["a"], "additionalProperties": false, "$comment": "C",
    });
    check(
        plain,
        &[r#"{"a":"xy"}"#, r#"{"a":"xy","b":3,"c":"/tmp"}"#],
        &[r#"{"a":"xyz"}"#, r#"{"a":null}"#, "{}"],
    );
    for draft in [
        "http://json-schema.org/draft-03/schema#",
        "http://json-schema.org/draft-04/hyper-schema#",
        "https://json-schema.org/draft-07/schema",
        "http://json-schema.org/schema#",
        "http://iglucentral.com/schemas/com.snowplowanalytics.self-desc/schema/jsonschema/1-0-0#",
    ] {
        check(json!({ "$schema": draft, "self": { "vendor": "v" }, "type": "integer" }), &["1"], &["\"a\""]);
    }
}

#[test]
fn patterns_of_names_may_match_named_properties() {
    let small = json!({ "enum": [0, 1, 2] });
    check(
        json!({ "type": "object", "properties": { "score": small }, "required": ["score"], "additionalProperties": false,
            "patternProperties": { "^score$": { "enum": [1, 2, 3] } } }),
        &[r#"{"score":1}"#, r#"{"score":2}"#],
        &[r#"{"score":0}"#, r#"{"score":3}"#, "{}"],
    );
    check(
        json!({ "type": "object", "properties": { "a": small, "b": small }, "additionalProperties": false,
            "required": ["a", "b"], "patternProperties": { "^(a|b)$": small } }),
        &[r#"{"a":1,"b":2}"#],
        &[r#"{"a":1}"#, r#"{"a":1,"b":2,"c":1}"#, r#"{"a":1,"b":3}"#],
    );
    check(
        json!({ "type": "object", "properties": { "ab": { "type": "integer" } }, "additionalProperties": false,
            "patternProperties": { "^a": { "minimum": 2, "type": "integer" } } }),
        &[r#"{"ab":2}"#, r#"{"ac":3}"#, r#"{"ab":5,"ac":3}"#],
        &[r#"{"ab":1}"#, r#"{"ac":1}"#, r#"{"b":2}"#],
    );
}

#[test]
fn patterns_of_names_may_overlap() {
    let integer = json!({ "type": "integer" });
    check(
        json!({ "type": "object", "patternProperties": { "^a": integer, "b$": integer }, "additionalProperties": false }),
        &[r#"{"ab":1}"#, r#"{"ac":1}"#, r#"{"cb":1}"#],
        &[r#"{"cc":1}"#, r#"{"ab":"x"}"#],
    );
    check(
        json!({ "type": "object", "patternProperties": { "^a": { "minimum": 1 }, "b$": integer } }),
        &[r#"{"ab":1}"#],
        &[r#"{"ab":0}"#, r#"{"ab":"x"}"#],
    );
    check(
        json!({ "type": "object", "properties": { "n": { "maximum": 5 } }, "additionalProperties": { "type": "string" },
            "patternProperties": { "[\\s\\S]*": integer } }),
        &[r#"{"n":5,"x":7}"#],
        &[r#"{"n":6}"#, r#"{"x":"y"}"#],
    );
    check(
        json!({ "type": "object", "patternProperties": { "^a": { "type": "string" }, "b$": integer }, "additionalProperties": false }),
        &[r#"{"ac":"x","cb":1}"#, "{}"],
        &[r#"{"ab":1}"#, r#"{"ab":"x"}"#, r#"{"cc":1}"#],
    );
    check(
        json!({ "type": "object", "properties": { "ac": true, "bb": true },
            "patternProperties": { "^a": integer, "b$": { "minimum": 3 } }, "additionalProperties": { "type": "null" } }),
        &[r#"{"ac":1,"bb":3}"#, r#"{"ab":3}"#, r#"{"aa":1,"cb":4.5,"c":null}"#],
        &[r#"{"ac":1.5}"#, r#"{"bb":1}"#, r#"{"ab":3.5}"#, r#"{"ab":1}"#, r#"{"c":1}"#],
    );
}

#[test]
fn patterns_of_names_may_look_ahead() {
    let integer = json!({ "type": "integer" });
    check(
        json!({ "type": "object", "patternProperties": { "^(?!plugins$|x-)[a-z][a-z-]*$": integer },
            "properties": { "plugins": { "type": "string" } }, "additionalProperties": false }),
        &[r#"{"plugins":"a","plugin":1}"#, r#"{"x":1,"xa-":2}"#],
        &[r#"{"plugins":1}"#, r#"{"x-a":1}"#, r#"{"A":1}"#],
    );
    check(
        json!({ "type": "object", "patternProperties": { "^(?!a|b).+$": integer }, "additionalProperties": { "type": "null" } }),
        &[r#"{"c":1,"é":2}"#, r#"{"a":null,"bc":null}"#],
        &[r#"{"c":null}"#, r#"{"a":1}"#],
    );
}

#[test]
fn names_of_properties_fit_their_schema() {
    let with = |names: Value| json!({ "type": "object", "propertyNames": names, "additionalProperties": { "enum": [0, 1] } });
    check(with(json!({ "type": "string" })), &["{}", r#"{"a":1}"#], &[r#"{"a":2}"#]);
    check(with(json!({ "pattern": "^[a-c]+$", "minLength": 1 })), &[r#"{"ab":1}"#, "{}"], &[r#"{"ad":1}"#]);
    check(with(json!({ "enum": ["a", "b"] })), &[r#"{"a":1,"b":0}"#, "{}"], &[r#"{"c":1}"#, r#"{"a":2}"#]);
    check(
        with(json!({ "anyOf": [{ "const": "a" }, { "pattern": "^x" }] })),
        &[r#"{"a":1}"#, r#"{"xy":1}"#],
        &[r#"{"b":1}"#],
    );
    check(with(json!({ "maxLength": 2 })), &[r#"{"ab":1}"#], &[r#"{"abc":1}"#]);
    check(with(json!({ "not": { "enum": ["a"] } })), &[r#"{"b":1}"#], &[r#"{"a":1}"#]);
    check(
        with(json!({ "allOf": [{ "pattern": "^[a-c]+$" }, { "pattern": "b" }] })),
        &[r#"{"abc":1}"#, r#"{"b":1}"#],
        &[r#"{"ac":1}"#, r#"{"bd":1}"#],
    );
    check(
        json!({ "type": "object", "properties": { "a": {}, "B": {} }, "propertyNames": { "pattern": "^[a-z]+$" },
            "additionalProperties": false }),
        &[r#"{"a":1}"#],
        &[r#"{"B":1}"#],
    );
}

#[test]
fn properties_depend_on_others() {
    let cards = json!({ "type": "object", "properties": { "card": { "type": "integer" }, "zip": { "type": "integer" } },
        "additionalProperties": false, "dependentRequired": { "card": ["zip"] } });
    check(cards.clone(), &["{}", r#"{"zip":1}"#, r#"{"card":1,"zip":2}"#], &[r#"{"card":1}"#]);
    let mut old = cards;
    old["dependencies"] = old.as_object_mut().unwrap().shift_remove("dependentRequired").unwrap();
    check(old, &["{}", r#"{"card":1,"zip":2}"#], &[r#"{"card":1}"#]);
    check(
        json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "additionalProperties": { "type": "integer" },
            "dependentSchemas": { "a": { "required": ["b"], "properties": { "b": { "minimum": 3 } } } } }),
        &["{}", r#"{"b":1}"#, r#"{"a":1,"b":3}"#],
        &[r#"{"a":1}"#, r#"{"a":1,"b":2}"#],
    );
}

#[test]
fn one_of_disjoint_schemas_is_any_of_them() {
    let object = |kind: &str| json!({ "type": "object", "properties": { "kind": { "const": kind } }, "required": ["kind"], "additionalProperties": false });
    check(
        json!({ "oneOf": [{ "$ref": "#/$defs/Cat" }, { "$ref": "#/$defs/Dog" }], "$defs": { "Cat": object("cat"), "Dog": object("dog") },
            "discriminator": { "propertyName": "kind" } }),
        &[r#"{"kind":"cat"}"#, r#"{"kind":"dog"}"#],
        &[r#"{"kind":"cow"}"#, "{}"],
    );
    check(
        json!({ "type": "object", "required": ["kind"], "oneOf": [
            { "properties": { "kind": { "enum": ["a", "b"] } } }, { "properties": { "kind": { "enum": ["c"] } } }] }),
        &[r#"{"kind":"a"}"#, r#"{"kind":"c"}"#],
        &[r#"{"kind":"d"}"#, "{}"],
    );
    check(
        json!({ "oneOf": [{ "type": "string", "maxLength": 2 }, { "type": "string", "minLength": 3, "maxLength": 4 }] }),
        &[r#""ab""#, r#""abcd""#],
        &[r#""abcde""#],
    );
    check(
        json!({ "oneOf": [{ "const": 1 }, { "enum": [2, 3] }, { "type": ["null", "boolean"] }] }),
        &["1", "3", "null"],
        &["4"],
    );
    check(
        json!({ "oneOf": [{ "type": "string", "pattern": "^a" }, { "type": "string", "pattern": "^b" }] }),
        &[r#""ax""#, r#""bx""#],
        &[r#""cx""#],
    );
    check(
        json!({ "oneOf": [{ "type": "integer", "maximum": 3 }, { "type": "number", "minimum": 4 }] }),
        &["3", "4.5"],
        &["3.5"],
    );
}

#[test]
fn one_of_overlapping_schemas_leaves_out_what_fits_several() {
    check(
        json!({ "type": "object", "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
            "additionalProperties": false, "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] }),
        &[r#"{"a":1}"#, r#"{"b":1}"#],
        &["{}", r#"{"a":1,"b":1}"#],
    );
    check(
        json!({ "oneOf": [{ "type": "integer" }, { "minimum": 2 }] }),
        &["1", r#""x""#, "null"],
        &["2", "3"],
    );
    check(
        json!({ "oneOf": [{ "enum": ["a", "b"] }, { "type": "string" }] }),
        &[r#""c""#, r#""ab""#],
        &[r#""a""#, r#""b""#],
    );
    check(
        json!({ "oneOf": [{ "type": "null" }, { "type": "null" }, { "type": "boolean" }] }),
        &["true"],
        &["null"],
    );
    check(
        json!({ "oneOf": [{ "type": "string", "pattern": "^a" }, { "type": "string", "pattern": "b$" }] }),
        &[r#""a""#, r#""b""#, r#""aba""#],
        &[r#""ab""#, r#""c""#],
    );
    check(
        json!({ "oneOf": [{ "type": "string", "pattern": "^[^ ]+$" }, { "type": "string" }] }),
        &[r#""""#, r#""a b""#],
        &[r#""a""#],
    );
    // Objects that have only names of their own in common are both but if they are empty.
    let closed = |names: &[&str]| {
        let names = names.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" })));
        json!({ "type": "object", "properties": names.collect::<serde_json::Map<_, _>>(), "additionalProperties": false })
    };
    check(
        json!({ "oneOf": [closed(&["a", "if"]), closed(&["b", "if"]), { "type": "string" }] }),
        &[r#"{"a":"x"}"#, r#"{"b":"x","if":"y"}"#, r#""s""#],
        &["{}", r#"{"if":"y"}"#, r#"{"a":"x","b":"y"}"#],
    );
    let list = |items: &[&str]| json!({ "type": "array", "items": { "enum": items } });
    check(
        json!({ "oneOf": [list(&["top", "left"]), list(&["all"])] }),
        &[r#"["top"]"#, r#"["all","all"]"#],
        &["[]", r#"["top","all"]"#],
    );
    assert_eq!(
        problem(json!({ "items": { "oneOf": [{ "format": "date" }, { "format": "time" }] } })),
        "json_schema at /items, keyword `oneOf`: a value may fit several of its schemas, which is not supported; `anyOf` is"
    );
}

#[test]
fn what_must_not_fit_is_left_out() {
    check(
        json!({ "type": "object", "properties": { "a": {}, "b": {} }, "not": { "required": ["a", "b"] }, "additionalProperties": false }),
        &["{}", r#"{"a":1}"#, r#"{"b":1}"#],
        &[r#"{"a":1,"b":1}"#],
    );
    check(
        json!({ "not": { "type": ["object", "array", "number"] } }),
        &["null", r#""a""#, "true"],
        &["{}", "[]", "1"],
    );
    check(
        json!({ "type": "string", "not": { "enum": ["ab", "a", ""] } }),
        &[r#""b""#, r#""abc""#, r#""aé""#],
        &[r#""a""#, r#""ab""#, r#""""#],
    );
    check(
        json!({ "not": { "anyOf": [{ "type": "string" }, { "minimum": 3 }] }, "type": ["integer", "string"] }),
        &["2"],
        &["3", r#""a""#],
    );
    check(json!({ "type": "integer", "not": { "type": "string" } }), &["2"], &[r#""a""#]);
    check(
        json!({ "type": "string", "not": { "pattern": "^x-|/" } }),
        &[r#""""#, r#""x""#, r#""ax-é""#],
        &[r#""x-""#, r#""a/b""#],
    );
    check(
        json!({ "type": "array", "not": { "items": { "type": "integer" } } }),
        &[r#"["a"]"#, r#"[1,null,2]"#],
        &["[]", "[1,2]"],
    );
    check(json!({ "type": "integer", "not": { "not": { "minimum": 2 } } }), &["2"], &["1"]);
    check(json!({ "items": { "not": {} }, "type": "array" }), &["[]"], &["[1]"]);
    check(json!({ "type": "integer", "not": { "enum": [1, 5, 3.5] } }), &["0", "6"], &["1", "5"]);
    assert_eq!(
        problem(json!({ "properties": { "a": { "type": "string", "not": { "format": "date" } } } })),
        "json_schema at /properties/a, keyword `not`: values that do not fit it cannot be told from others, which is not supported"
    );
}

#[test]
fn conditions_choose_between_schemas() {
    check(
        json!({ "type": "object", "properties": { "kind": { "enum": ["a", "b"] }, "n": { "type": "integer" } },
            "required": ["kind"], "additionalProperties": false,
            "if": { "properties": { "kind": { "const": "a" } } }, "then": { "required": ["n"] },
            "else": { "properties": { "n": false } } }),
        &[r#"{"kind":"a","n":1}"#, r#"{"kind":"b"}"#],
        &[r#"{"kind":"a"}"#, r#"{"kind":"b","n":1}"#],
    );
    check(json!({ "type": "integer", "if": { "pattern": "x" } }), &["1"], &[r#""a""#]);
    check(
        json!({ "type": "integer", "if": { "type": "string" }, "else": { "minimum": 2 }, "then": { "pattern": "x" } }),
        &["2"],
        &["1"],
    );
}

#[test]
fn items_are_all_different() {
    let unique = |items: Value| json!({ "type": "array", "uniqueItems": true, "items": items });
    check(
        unique(json!({ "enum": ["a", "b", "a"] })),
        &["[]", r#"["a"]"#, r#"["b","a"]"#],
        &[r#"["a","a"]"#, r#"["c"]"#, r#"["a","b","a"]"#],
    );
    let mut few = unique(json!({ "enum": [1, 2, 3, 4, 5] }));
    (few["minItems"], few["maxItems"]) = (2.into(), 3.into());
    check(few, &["[1,2]", "[5,3,1]"], &["[1]", "[1,1]", "[1,2,3,4]", "[2,1,2]"]);
    check(
        unique(json!({ "type": "string" })),
        &["[]", r#"["a"]"#, r#"["a","b","","ab"]"#, r#"["a\n","a\"","a"]"#, "[ \"a\", \"b\"]"],
        &[r#"["a","a"]"#, r#"["","a",""]"#, r#"["é","b","é"]"#, "[\"a\",\n \"a\"]"],
    );
    check(
        unique(json!({ "type": "number" })),
        &["[1,10,1.5,-1]", "[0.1,0.01]", "[1e1,1]"],
        &["[1,1]", "[1,1.0]", "[10,1e1]", "[0,-0.0]", "[0.5,0,5e-1]"],
    );
    check(
        unique(json!({ "type": "object", "additionalProperties": { "type": "integer" } })),
        &[r#"[{},{"a":1},{"a":2},{"a":1,"b":2}]"#],
        &["[{},{}]", r#"[{"a":1},{"a":1}]"#, r#"[{"a":1,"b":2},{"b":2,"a":1}]"#, r#"[{"a":1}, { "a": 1 }]"#],
    );
    check(
        unique(unique(json!({ "enum": [0, 1] }))),
        &["[[],[0],[1,0],[0,1]]"],
        &["[[],[]]", "[[0,0]]", "[[0,1],[0,1]]"],
    );
    check(unique(json!({})), &[r#"[1,"1",[1],true,null]"#], &["[true,true]", "[[1],[1.0]]"]);
    check(
        json!({ "uniqueItems": true, "items": { "type": "boolean" } }),
        &["[true,false]", "[false]", "3"],
        &["[true,true]", "[true,false,true]"],
    );
    let mut short = unique(json!({ "type": "string" }));
    short["maxItems"] = 1.into();
    check(short, &["[]", r#"["a"]"#], &[r#"["a","b"]"#]);
    check(
        json!({ "type": "array", "uniqueItems": true, "items": [{ "type": "string" }, { "type": "integer" }], "additionalItems": false }),
        &[r#"["a",1]"#],
        &[r#"["a",1,2]"#],
    );
    check(json!({ "type": "string", "uniqueItems": true }), &[r#""a""#], &["[]"]);
    check(
        json!({ "type": "array", "uniqueItems": false, "items": { "type": "integer" } }),
        &["[1,1]"],
        &[r#"["a"]"#],
    );
    let mut many = unique(json!({ "type": "boolean" }));
    many["minItems"] = 3.into();
    assert!(problem(many).contains("Unsatisfiable"));
}

#[test]
fn arrays_are_unique_where_their_schema_says_so() {
    let unique = json!({ "type": "array", "uniqueItems": true, "items": { "type": "integer" } });
    let free = json!({ "type": "array", "items": { "type": "integer" } });
    check(
        json!({ "type": "object", "properties": { "a": unique, "b": free }, "additionalProperties": unique }),
        &[r#"{"a":[1,2],"b":[1,1],"c":[2]}"#],
        &[r#"{"a":[1,1]}"#, r#"{"c":[1,1]}"#, r#"{"b":[1,1],"c":[2,2]}"#],
    );
    check(
        json!({ "type": "array", "prefixItems": [free, unique], "items": { "$ref": "#/$defs/u" }, "$defs": { "u": unique } }),
        &["[[1,1],[1,2],[1,2]]"],
        &["[[1],[1,1]]", "[[1],[1],[1,1]]"],
    );
    check(
        json!({ "type": "object", "patternProperties": { "^x": { "anyOf": [{ "type": "null" }, unique] } } }),
        &[r#"{"x":[1,2],"y":[1]}"#, r#"{"x":null}"#],
        &[r#"{"x":[1,1]}"#],
    );
    // A tree: each node's names are unique among themselves.
    check(
        json!({ "$ref": "#/$defs/node", "$defs": { "node": { "type": "object", "additionalProperties": false, "properties": {
            "names": { "type": "array", "uniqueItems": true, "items": { "type": "string" } },
            "children": { "type": "array", "items": { "$ref": "#/$defs/node" } } } } } }),
        &[r#"{"names":["a"],"children":[{"names":["a","b"]},{"names":["a","b"]}]}"#],
        &[r#"{"children":[{"names":["a"]},{"children":[{"names":["a","a"]}]}]}"#],
    );
}

/// Masks never lead to a place where every item would be a duplicate.
#[test]
fn unique_items_leave_a_way_on() {
    let unique = |items: Value, least: u64| json!({ "type": "array", "uniqueItems": true, "items": items, "minItems": least });
    let one_of_three = json!({ "type": "string", "pattern": "^(?:ab|abc|b)$" });
    // After the first two, only the third is left, and then the end.
    check(
        unique(one_of_three.clone(), 0),
        &[r#"["ab","abc","b"]"#, r#"["abc","ab"]"#],
        &[r#"["ab","ab"]"#, r#"["b","b"]"#],
    );
    let compiler = GrammarCompiler::new(bytes());
    let follow = |value: Value, text: &str| {
        let mut matcher = compiler.compile(&schema(value)).unwrap().matcher();
        for byte in text.bytes() {
            assert!(matcher.mask().unwrap().allows(u32::from(byte) + 4), "{text}");
            matcher.advance(u32::from(byte) + 4).unwrap();
        }
        let mut next = String::new();
        for _ in 0..4 {
            if matcher.is_complete() {
                break;
            }
            let mask = matcher.mask().unwrap();
            let allowed: Vec<u32> = (0x21..0x7f).filter(|byte| mask.allows(byte + 4)).collect();
            let [only] = allowed[..] else { break };
            next.push(only as u8 as char);
            matcher.advance(only + 4).unwrap();
        }
        next
    };
    assert_eq!(follow(unique(one_of_three.clone(), 0), r#"["ab","b","#), "\"abc");
    assert_eq!(follow(unique(one_of_three.clone(), 0), r#"["abc","b","#), "\"ab\"");
    assert_eq!(follow(unique(one_of_three, 0), r#"["abc","b","ab""#), "]");
    assert_eq!(follow(unique(json!({ "type": "integer", "minimum": 0, "maximum": 3 }), 3), "[3,1,0,"), "2]");
    let closed = json!({ "type": "object", "properties": { "kind": { "enum": ["ab", "ac"] } }, "required": ["kind"], "additionalProperties": false });
    assert_eq!(follow(unique(closed, 2), r#"[{"kind":"ac"},{"kind":"a"#), "b\"}]");
}

#[test]
fn some_items_fit() {
    check(
        json!({ "type": "array", "contains": { "const": 1 }, "items": { "type": "integer" } }),
        &["[1]", "[0,1]", "[1,1,5]", "[0,2,1,3]"],
        &["[]", "[2]", r#"[1,"a"]"#],
    );
    check(
        json!({ "type": "array", "contains": { "type": "null" }, "minContains": 2, "maxContains": 2 }),
        &["[null,null]", "[1,null,null]"],
        &["[null]", "[null,null,null]"],
    );
    check(json!({ "type": "array", "contains": false, "minContains": 0 }), &["[]", "[1]"], &["1"]);
}

#[test]
fn items_may_be_a_list_as_in_old_drafts() {
    check(
        json!({ "type": "array", "items": [{ "type": "string" }, { "type": "integer" }], "additionalItems": { "type": "null" }, "minItems": 2 }),
        &[r#"["a",1]"#, r#"["a",1,null]"#],
        &[r#"["a"]"#, r#"["a",1,2]"#, r#"[1,"a"]"#],
    );
    check(
        json!({ "type": "array", "items": { "type": "integer" }, "additionalItems": false }),
        &["[1,2]"],
        &[r#"["a"]"#],
    );
}

#[test]
fn properties_are_counted() {
    let closed = json!({ "type": "object", "properties": { "a": { "const": 1 }, "b": { "const": 1 }, "c": { "const": 1 } }, "additionalProperties": false });
    let with = |counts: Value| {
        let mut schema = closed.clone();
        schema.as_object_mut().unwrap().extend(counts.as_object().unwrap().clone());
        schema
    };
    check(
        with(json!({ "minProperties": 1 })),
        &[r#"{"a":1}"#, r#"{"c":1}"#, r#"{"a":1,"b":1,"c":1}"#],
        &["{}"],
    );
    check(
        with(json!({ "minProperties": 2, "maxProperties": 2 })),
        &[r#"{"a":1,"b":1}"#, r#"{"b":1,"c":1}"#],
        &["{}", r#"{"a":1}"#, r#"{"a":1,"b":1,"c":1}"#],
    );
    check(
        with(json!({ "maxProperties": 1, "required": ["b"] })),
        &[r#"{"b":1}"#],
        &["{}", r#"{"a":1,"b":1}"#],
    );
    check(
        with(json!({ "maxProperties": 3, "minProperties": 0 })),
        &["{}", r#"{"a":1,"b":1,"c":1}"#],
        &[r#"{"d":1}"#],
    );
    check(
        json!({ "type": "object", "properties": { "a": { "const": 1 } }, "additionalProperties": { "const": 2 }, "minProperties": 1, "maxProperties": 2 }),
        &[r#"{"a":1}"#, r#"{"x":2}"#, r#"{"a":1,"x":2}"#, r#"{"x":2,"y":2}"#],
        &["{}", r#"{"a":1,"x":2,"y":2}"#],
    );
}

#[test]
fn bounds_may_be_excluded_as_in_draft_4() {
    check(
        json!({ "type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 3, "exclusiveMaximum": false }),
        &["2", "3"],
        &["1", "4"],
    );
    check(json!({ "type": "integer", "exclusiveMinimum": true, "minLength": 2.0 }), &["1"], &[]);
}

#[test]
fn references_name_schemas_of_the_document() {
    let definitions = json!({
        "a/b": { "type": "integer" }, "c~d%": { "const": 2 }, "anchored": { "$anchor": "here", "const": 3 },
        "named": { "$id": "http://x.org/named.json", "const": 4 }, "old": { "id": "#old", "const": 5 },
        "group": { "inner": { "const": 6 } }, "default": { "const": 7 },
    });
    for (reference, good, bad) in [
        ("#/$defs/a~1b", "1", "null"),
        ("#/$defs/c~0d%25", "2", "1"),
        ("#here", "3", "1"),
        ("named.json", "4", "1"),
        ("http://x.org/named.json#", "4", "1"),
        ("http://x.org/root.json#/$defs/named", "4", "1"),
        ("#old", "5", "1"),
        ("#/$defs/group/inner", "6", "1"),
        ("#/$defs/default", "7", "1"),
    ] {
        let document = json!({ "$id": "http://x.org/root.json", "$defs": definitions, "$ref": reference });
        check(document.clone(), &[good], &[bad]);
        check(
            json!({ "$id": "http://x.org/root.json", "$defs": definitions, "type": "array", "items": { "$ref": reference } }),
            &[&format!("[{good}]")],
            &[&format!("[{bad}]")],
        );
    }
    check(
        json!({ "type": "object", "properties": { "a/b": { "type": "integer" }, "next": { "$ref": "#/properties/a~1b" } }, "required": ["next"] }),
        &[r#"{"next":1}"#],
        &[r#"{"next":"x"}"#],
    );
    assert!(
        problem(json!({ "$ref": "http://x.org/other.json" })).contains("only references within the schema")
    );
    assert!(problem(json!({ "$ref": "#/$defs/none" })).contains("there is no schema at `#/$defs/none`"));
}

#[test]
fn definitions_that_nothing_names_may_be_anything() {
    check(
        json!({ "type": "integer", "definitions": { "a": { "not": { "format": "date" } }, "b": "text" } }),
        &["1"],
        &["\"a\""],
    );
}

#[test]
fn properties_that_nothing_looks_at_are_refused() {
    check(
        json!({ "allOf": [{ "type": "object", "properties": { "a": { "const": 1 } } }], "properties": { "b": { "const": 1 } }, "unevaluatedProperties": false }),
        &[r#"{"b":1,"a":1}"#, "{}"],
        &[r#"{"c":1}"#],
    );
    check(
        json!({ "type": "array", "prefixItems": [{ "const": 1 }], "unevaluatedItems": false }),
        &["[1]", "[]"],
        &["[1,2]"],
    );
}

#[test]
fn required_may_be_said_of_the_property() {
    check(
        json!({ "type": "object", "properties": { "a": { "type": "integer", "required": true }, "b": { "type": "integer", "required": false } }, "additionalProperties": false }),
        &[r#"{"a":1}"#, r#"{"a":1,"b":1}"#],
        &["{}", r#"{"b":1}"#],
    );
}

#[test]
fn look_ahead_at_the_beginning_of_patterns_is_enforced() {
    check(
        json!({ "type": "string", "pattern": "^(?=.*[0-9])(?=.*[a-z])[0-9a-z]{2,4}$" }),
        &[r#""a1""#, r#""1abc""#],
        &[r#""ab""#, r#""12""#, r#""a""#],
    );
}

#[test]
fn formats_of_all_drafts_are_enforced() {
    for (format, good, bad) in [
        ("uri-reference", "/a/b?c=1#d", "a b"),
        ("uri-reference", "https://x.org/a", "\\\\x"),
        ("iri", "https://x.org/a", "x"),
        ("idn-email", "a@b.org", "a"),
        ("idn-hostname", "x.org", "-x"),
        ("json-pointer", "/a~1b/0", "a"),
        ("relative-json-pointer", "1/a", "/a"),
        ("uri-template", "/a/{b}", "{"),
        ("regex", "^[a-z]+(a|b)*$", "("),
    ] {
        let quoted = |text: &str| Value::from(text).to_string();
        check(json!({ "type": "string", "format": format }), &[&quoted(good)], &[&quoted(bad)]);
    }
}

#[test]
fn any_value_may_be_asked_for_as_a_constant() {
    check(
        json!({ "enum": ["a", 1, null, [1, "x"], { "a": { "b": true } }] }),
        &[r#""a""#, "1", "null", r#"[1,"x"]"#, r#"{"a":{"b":true}}"#],
        &["2", r#"{"a":{}}"#],
    );
    check(json!(true), &["1", "{}"], &["x"]);
    let compiler = GrammarCompiler::new(bytes());
    assert!(compiler.compile(&Constraint::JsonSchema(std::sync::Arc::new(json!(false)))).is_err());
}
