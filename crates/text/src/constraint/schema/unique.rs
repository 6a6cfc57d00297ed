//! Where a schema asks for unique items, as a map that is followed along an answer.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::logic::Logic;
use super::reader::Schemas;
use super::{arrays, list, named};

/// The schemas of a document, as far as arrays with unique items can be in their values.
///
/// All alternatives of a value count: if one of them asks for unique items, the items are unique whichever is chosen. So the
/// values that fit may be fewer, and never more.
#[derive(Debug, Default)]
pub(in crate::constraint) struct UniqueMap {
    nodes: Vec<Node>,
}

/// The nodes of all schemas that a value may have to fit, sorted. Empty where no array below has unique items.
pub(in crate::constraint) type Place = Arc<[u32]>;

/// A schema, and the nodes of the schemas in it.
#[derive(Debug, Default)]
struct Node {
    is_unique: bool,
    /// For the same value.
    same: Vec<u32>,
    /// For values of a name; `None` if it leads to no unique items.
    properties: HashMap<String, Option<u32>>,
    /// For values of names that are not listed, and of any name.
    others: Vec<u32>,
    any: Vec<u32>,
    /// For the first items, for those behind them, and for all.
    first: Vec<Option<u32>>,
    items: Vec<u32>,
    any_items: Vec<u32>,
}

impl UniqueMap {
    /// The map of a document; `None` if no array needs a look at its items.
    pub(super) fn new(schemas: &Schemas) -> Option<UniqueMap> {
        let mut names: Vec<&String> = schemas.definitions.keys().collect();
        names.sort_unstable();
        let named = names.iter().zip(1..).map(|(name, node)| (name.as_str(), node));
        let ids: HashMap<&str, u32> = named.chain([("#", 0)]).collect();
        let mut builder = Builder { logic: Logic::new(schemas), ids, nodes: Vec::new() };
        builder.nodes.resize_with(names.len() + 1, Node::default);
        let definitions = names.iter().map(|name| &schemas.definitions[*name]);
        for (node, schema) in [&schemas.root].into_iter().chain(definitions).enumerate() {
            if let Value::Object(map) = schema {
                builder.nodes[node] = builder.node(map);
            }
        }
        let mut map = UniqueMap { nodes: builder.nodes };
        map.prune();
        let is_needed = map.nodes[0].is_unique || map.nodes[0].below().next().is_some();
        is_needed.then_some(map)
    }

    /// Leaves out the schemas that lead to no unique items.
    fn prune(&mut self) {
        let mut is_useful: Vec<bool> = self.nodes.iter().map(|node| node.is_unique).collect();
        let mut above: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate() {
            node.below().for_each(|below| above[below as usize].push(id as u32));
        }
        let mut todo: Vec<u32> = (0..self.nodes.len() as u32).filter(|id| is_useful[*id as usize]).collect();
        while let Some(id) = todo.pop() {
            for &id in &above[id as usize] {
                if !std::mem::replace(&mut is_useful[id as usize], true) {
                    todo.push(id);
                }
            }
        }
        let is_useful = |id: &u32| is_useful[*id as usize];
        for node in &mut self.nodes {
            for list in
                [&mut node.same, &mut node.others, &mut node.any, &mut node.items, &mut node.any_items]
            {
                list.retain(is_useful);
            }
            let one_by_one = node.properties.values_mut().chain(&mut node.first);
            one_by_one.for_each(|one| *one = one.filter(is_useful));
            if node.others.is_empty() {
                node.properties.retain(|_, one| one.is_some());
            }
        }
    }

    /// The place of the whole answer.
    pub(in crate::constraint) fn root(&self) -> Place {
        self.place([0])
    }

    /// The place of a property's value.
    pub(in crate::constraint) fn property(&self, place: &Place, name: &str) -> Place {
        self.place(self.nodes_at(place).flat_map(|node| {
            let named = node.properties.get(name);
            let others = if named.is_some() { &[][..] } else { &node.others };
            named.copied().flatten().into_iter().chain(others.iter().chain(&node.any).copied())
        }))
    }

    /// The place of an item.
    pub(in crate::constraint) fn item(&self, place: &Place, index: usize) -> Place {
        self.place(self.nodes_at(place).flat_map(|node| {
            let first = node.first.get(index);
            let items = if first.is_some() { &[][..] } else { &node.items };
            first.copied().flatten().into_iter().chain(items.iter().chain(&node.any_items).copied())
        }))
    }

    /// Whether the items of an array at a place are unique.
    pub(in crate::constraint) fn is_unique(&self, place: &Place) -> bool {
        self.nodes_at(place).any(|node| node.is_unique)
    }

    fn nodes_at<'a>(&'a self, place: &'a Place) -> impl Iterator<Item = &'a Node> {
        place.iter().map(|id| &self.nodes[*id as usize])
    }

    /// A place of nodes, and of all that are for the same value.
    fn place(&self, nodes: impl IntoIterator<Item = u32>) -> Place {
        let mut todo: Vec<u32> = nodes.into_iter().collect();
        let mut found: Vec<u32> = Vec::new();
        while let Some(id) = todo.pop() {
            if let Err(at) = found.binary_search(&id) {
                found.insert(at, id);
                todo.extend(&self.nodes[id as usize].same);
            }
        }
        found.into()
    }
}

impl Node {
    fn below(&self) -> impl Iterator<Item = u32> + '_ {
        let one_by_one = self.properties.values().chain(&self.first).copied().flatten();
        let lists = [&self.same, &self.others, &self.any, &self.items, &self.any_items];
        one_by_one.chain(lists.into_iter().flatten().copied())
    }
}

struct Builder<'a> {
    logic: Logic<'a>,
    /// The nodes of definitions, by reference.
    ids: HashMap<&'a str, u32>,
    nodes: Vec<Node>,
}

impl Builder<'_> {
    /// Adds the node of an inner schema; `None` if the schema is not an object.
    fn add(&mut self, schema: &Value) -> Option<u32> {
        let node = self.node(schema.as_object()?);
        self.nodes.push(node);
        Some(self.nodes.len() as u32 - 1)
    }

    fn add_all<'v>(&mut self, schemas: impl IntoIterator<Item = &'v Value>) -> Vec<u32> {
        schemas.into_iter().filter_map(|schema| self.add(schema)).collect()
    }

    fn node(&mut self, map: &Map<String, Value>) -> Node {
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|keyword| list(map, keyword));
        let ones = ["not", "if", "then", "else"].into_iter().filter_map(|keyword| map.get(keyword));
        let dependent = named(map, "dependentSchemas").map(|(_, schema)| schema);
        let mut same = self.add_all(lists.chain(ones).chain(dependent));
        same.extend(map.get("$ref").and_then(Value::as_str).map(|name| self.ids[name]));
        let patterns = named(map, "patternProperties").map(|(_, schema)| schema);
        Node {
            is_unique: map.contains_key("uniqueItems") && arrays::may_repeat(&self.logic, map),
            same,
            properties: named(map, "properties")
                .map(|(name, schema)| (name.clone(), self.add(schema)))
                .collect(),
            others: self.add_all(map.get("additionalProperties")),
            any: self.add_all(patterns.chain(map.get("unevaluatedProperties"))),
            first: list(map, "prefixItems").iter().map(|schema| self.add(schema)).collect(),
            items: self.add_all(map.get("items")),
            any_items: self.add_all([map.get("contains"), map.get("unevaluatedItems")].into_iter().flatten()),
        }
    }
}
