//! Arrivals that were recorded: `arrival_s,model,input_size,output_size`.
//!
//! Only times and models are used. Sizes are those of the recorded service; requests have the
//! shape of the model under load.

use std::time::Duration;

const MAX_ROWS: usize = 20_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// From the start of the trace.
    pub at: Duration,
    /// The model or application asked; empty if the trace does not say.
    pub model: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error("line 1 names no column arrival_s")]
    NoArrivals,
    #[error("line {line}: arrival_s is not a number of seconds")]
    Time {
        /// Counted from 1.
        line: usize,
    },
    #[error("it holds no arrival")]
    Empty,
    #[error("it holds more than {MAX_ROWS} arrivals")]
    Long,
}

/// Reads a trace; the result is in order of time, and the first arrival is at zero.
pub fn parse(text: &str) -> Result<Vec<Arrival>, TraceError> {
    let mut lines = text.lines().enumerate();
    let header: Vec<&str> = lines.next().map_or("", |(_, line)| line).split(',').collect();
    let column = |names: &[&str]| header.iter().position(|name| names.contains(&name.trim()));
    let time = column(&["arrival_s"]).ok_or(TraceError::NoArrivals)?;
    let model = column(&["model", "model_or_app"]);
    let mut arrivals = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let seconds = fields.get(time).and_then(|field| field.parse::<f64>().ok());
        let at = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let at = at.ok_or(TraceError::Time { line: index + 1 })?;
        let model = model.and_then(|column| fields.get(column)).copied().unwrap_or_default();
        if arrivals.len() == MAX_ROWS {
            return Err(TraceError::Long);
        }
        arrivals.push(Arrival { at, model: model.to_owned() });
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    let first = arrivals.first().ok_or(TraceError::Empty)?.at;
    arrivals.iter_mut().for_each(|arrival| arrival.at -= first);
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_put_in_order_and_start_at_zero() {
        let text = "arrival_s,model,input_size,output_size\n5.5,b,1,1\n\n4,a,1,1\n";
        let at = |seconds| Duration::from_secs_f64(seconds);
        let arrival = |seconds, model: &str| Arrival { at: at(seconds), model: model.to_owned() };
        assert_eq!(parse(text).unwrap(), [arrival(0.0, "a"), arrival(1.5, "b")]);
    }

    #[test]
    fn columns_are_found_by_name() {
        let arrivals = parse("input_size, model_or_app ,arrival_s\n9,conv,0\n").unwrap();
        assert_eq!(arrivals[0].model, "conv");
        assert_eq!(parse("arrival_s\n0\n").unwrap()[0].model, "");
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(parse("t,model\n"), Err(TraceError::NoArrivals));
        assert_eq!(parse("arrival_s\n"), Err(TraceError::Empty));
        assert_eq!(parse("arrival_s\n1\n-1\n"), Err(TraceError::Time { line: 3 }));
        assert_eq!(parse("model,arrival_s\na\n"), Err(TraceError::Time { line: 2 }));
    }
}
