//! How a graph becomes an executable: passes, lowering, memory plan, session, the Device trait.
