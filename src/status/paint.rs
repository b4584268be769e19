//! Colours, where there is a terminal to show them.

/// A meaning, rather than a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// As it should be.
    Good,
    /// On its way, or worth a look.
    Unsettled,
    /// Not as it should be.
    Bad,
    /// Of little interest.
    Faint,
    /// A title.
    Strong,
}

/// Paints, or leaves as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    colours: bool,
}

impl Paint {
    pub(super) fn new(colours: bool) -> Self {
        Self { colours }
    }

    /// `text` in the colour of `tone`; it takes as much room as before.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Unsettled => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
            Tone::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
