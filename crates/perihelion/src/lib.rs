//! The public crate: tensor, graph, engine, pipelines and the CPU device under the names users know.
