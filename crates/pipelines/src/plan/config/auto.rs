//! A size that may be left open.

/// A size that may be left to the model and the machine: `auto` where there is none.
///
/// Two are equal if they are the same number, whether it is the default or not.
#[derive(Debug, Clone, Copy, Eq, Default)]
pub enum Auto {
    /// As large as the model and the memory allow.
    #[default]
    Auto,
    /// This many.
    At(usize),
    /// The default. A default length is lowered, with a warning, if the model's context is shorter.
    Usual(usize),
}

impl Auto {
    /// The number, if there is one.
    pub fn given(self) -> Option<usize> {
        match self {
            Auto::Auto => None,
            Auto::At(size) | Auto::Usual(size) => Some(size),
        }
    }

    /// The number, unless it is the default.
    pub fn asked(self) -> Option<usize> {
        match self {
            Auto::At(size) => Some(size),
            Auto::Auto | Auto::Usual(_) => None,
        }
    }
}

impl PartialEq for Auto {
    fn eq(&self, other: &Auto) -> bool {
        self.given() == other.given()
    }
}

impl From<usize> for Auto {
    fn from(size: usize) -> Auto {
        Auto::At(size)
    }
}

impl From<Option<usize>> for Auto {
    fn from(size: Option<usize>) -> Auto {
        size.map_or(Auto::Auto, Auto::At)
    }
}
