//! Program order: a linked list, so that nodes join and leave it in constant time.

use super::node::NodeId;

/// Stands for the node before the first one and for the node behind the last one.
const NONE: u32 = u32::MAX;

/// The nodes of a graph in program order.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// By node. Those of nodes that left are stale.
    links: Vec<Link>,
    first: u32,
    last: u32,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    behind: u32,
}

impl Default for Order {
    fn default() -> Order {
        Order { links: Vec::new(), first: NONE, last: NONE, len: 0 }
    }
}

impl Order {
    /// Appends a node that is not in the list.
    pub(crate) fn push(&mut self, node: NodeId) {
        self.link(node, self.last, NONE);
    }

    /// Inserts a node that is not in the list before one that is.
    pub(super) fn insert_before(&mut self, before: NodeId, node: NodeId) {
        self.link(node, self.links[before.0 as usize].before, before.0);
    }

    /// Takes a node out of the list.
    pub(crate) fn remove(&mut self, node: NodeId) {
        let Link { before, behind } = self.links[node.0 as usize];
        *self.behind(before) = behind;
        *self.before(behind) = before;
        self.len -= 1;
    }

    /// From the first to the last.
    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter { order: self, front: self.first, back: self.last, left: self.len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn link(&mut self, node: NodeId, before: u32, behind: u32) {
        let place = node.0 as usize;
        if place >= self.links.len() {
            self.links.resize(place + 1, Link { before: NONE, behind: NONE });
        }
        self.links[place] = Link { before, behind };
        *self.behind(before) = node.0;
        *self.before(behind) = node.0;
        self.len += 1;
    }

    /// What is behind a node, or what is first.
    fn behind(&mut self, node: u32) -> &mut u32 {
        if node == NONE { &mut self.first } else { &mut self.links[node as usize].behind }
    }

    /// What is before a node, or what is last.
    fn before(&mut self, node: u32) -> &mut u32 {
        if node == NONE { &mut self.last } else { &mut self.links[node as usize].before }
    }
}

impl FromIterator<NodeId> for Order {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Order {
        let mut order = Order::default();
        nodes.into_iter().for_each(|node| order.push(node));
        order
    }
}

/// Walks an [`Order`] from both ends.
#[derive(Debug, Clone)]
pub(crate) struct Iter<'o> {
    order: &'o Order,
    front: u32,
    back: u32,
    left: usize,
}

impl Iterator for Iter<'_> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        self.left = self.left.checked_sub(1)?;
        let node = self.front;
        self.front = self.order.links[node as usize].behind;
        Some(NodeId(node))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<NodeId> {
        self.left = self.left.checked_sub(1)?;
        let node = self.back;
        self.back = self.order.links[node as usize].before;
        Some(NodeId(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_join_and_leave_anywhere() {
        let ids = |order: &Order| order.iter().map(|id| id.0).collect::<Vec<_>>();
        let mut order: Order = [0, 1, 2].map(NodeId).into_iter().collect();
        order.insert_before(NodeId(0), NodeId(3));
        order.insert_before(NodeId(2), NodeId(4));
        assert_eq!(ids(&order), [3, 0, 1, 4, 2]);
        for node in [3, 1, 2] {
            order.remove(NodeId(node));
        }
        assert_eq!((ids(&order), order.len()), (vec![0, 4], 2));
        order.push(NodeId(5));
        assert_eq!(order.iter().rev().map(|id| id.0).collect::<Vec<_>>(), [5, 4, 0]);
        let mut ends = order.iter();
        assert_eq!(
            (ends.next(), ends.next_back(), ends.next()),
            (Some(NodeId(0)), Some(NodeId(5)), Some(NodeId(4)))
        );
        assert_eq!((ends.next(), ends.next_back()), (None, None));
        for node in [0, 4, 5] {
            order.remove(NodeId(node));
        }
        assert!(ids(&order).is_empty());
        order.push(NodeId(0));
        assert_eq!(ids(&order), [0]);
    }
}
