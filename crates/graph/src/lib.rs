//! What a computation is: values, ops and their meaning, types, text, verification.
