//! What each way of following time does not see, refused where it is written.

use super::{draft, read::Reader};

impl Reader {
    pub(super) fn follow_sees(&mut self, draft: &draft::Draft) {
        let by_rates = draft.detail.as_ref().is_some_and(|detail| detail.get_ref() == "rates");
        if let Some(placement) = draft.placement.as_ref().filter(|_| !by_rates) {
            self.problems.add(&placement.span(), "follow needs detail = \"rates\"");
        }
        for fault in &draft.faults {
            self.problems.add(&fault.kind.span(), "faults are not seen while following");
        }
    }

    pub(super) fn rates_see(&mut self, draft: &draft::Draft) {
        for timeout in draft.models.iter().filter_map(|model| model.timeout_ms.as_ref()) {
            let message = "timeout_ms is not seen by rates; use detail = \"requests\"";
            self.problems.add(&timeout.span(), message);
        }
        for fault in &draft.faults {
            let kind = fault.kind.get_ref().as_str();
            if matches!(kind, "slow-network" | "stale-reports") {
                let message = format!("{kind} is not seen by rates; use detail = \"requests\"");
                self.problems.add(&fault.kind.span(), message);
            }
        }
    }

    pub(super) fn training_sees(&mut self, draft: &draft::Draft) {
        let Some(training) = &draft.training else { return };
        if draft.detail.as_ref().is_none_or(|detail| detail.get_ref() != "rates") {
            let message = "training is followed by rates; give detail = \"rates\"";
            self.problems.add(&training.trace_csv.span(), message);
        }
        let follows = |word: &toml::Spanned<String>| word.get_ref() == "follow";
        if draft.placement.as_ref().is_some_and(follows) {
            return;
        }
        let whole = "beside training inference has whole GPUs of one kind: leave it out, or \
            give placement = \"follow\"";
        for gpu in &draft.gpus {
            if let Some(geometry) = &gpu.geometry {
                self.problems.add(&geometry.span(), whole);
            }
        }
        if let Some(gpu) = draft.gpus.get(1) {
            self.problems.add(&gpu.kind.span(), whole);
        }
        if let Some(placement) = &draft.placement {
            self.problems.add(&placement.span(), whole);
        }
        for fault in &draft.faults {
            self.problems.add(&fault.kind.span(), "faults are not seen beside training");
        }
    }
}
