//! What an architecture is: config and weights become a graph.
