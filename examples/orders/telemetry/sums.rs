//! What several processes have measured, as one page.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

/// Pages of processes, added up: counters and histograms over all of them, of gauges the greatest of those who were there to the end. What
/// they measure is the same for all, such as what waits in the database.
#[derive(Debug, Default)]
pub(crate) struct Sums(BTreeMap<String, Family>);

/// All samples of one name.
#[derive(Debug, Default)]
struct Family {
    /// The lines above them.
    help: String,
    kind: String,
    /// As they came: the buckets of a histogram by their bounds.
    samples: Vec<(String, f64)>,
    places: HashMap<String, usize>,
}

impl Sums {
    /// Adds the page of a process, which was there to the end unless it was killed.
    pub(crate) fn add(&mut self, page: &str, to_the_end: bool) {
        let mut family = &mut Family::default();
        let mut help = "";
        for line in page.lines() {
            if line.starts_with("# HELP ") {
                help = line;
            } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                family = self.0.entry(name.to_owned()).or_default();
                (family.help, family.kind) = (help.to_owned(), kind.to_owned());
            } else if let Some((sample, value)) = line.rsplit_once(' ')
                && let Ok(value) = value.parse::<f64>()
            {
                family.add(sample, value, to_the_end);
            }
        }
    }
}

impl Family {
    fn add(&mut self, sample: &str, value: f64, to_the_end: bool) {
        let is_gauge = self.kind == "gauge";
        if is_gauge && !to_the_end {
            return;
        }
        match self.places.get(sample) {
            Some(place) if is_gauge => self.samples[*place].1 = self.samples[*place].1.max(value),
            Some(place) => self.samples[*place].1 += value,
            None => {
                self.places.insert(sample.to_owned(), self.samples.len());
                self.samples.push((sample.to_owned(), value));
            }
        }
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Family { help, kind, samples, .. }) in &self.0 {
            if samples.is_empty() {
                continue;
            }
            writeln!(f, "{help}\n# TYPE {name} {kind}")?;
            samples.iter().try_for_each(|(sample, value)| writeln!(f, "{sample} {value}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_histograms_are_added_up_and_of_gauges_the_greatest_is_taken_of_who_was_there_to_the_end() {
        let page = |handled: u32, waiting: u32| {
            format!(
                "# HELP handled_total Messages.\n# TYPE handled_total counter\nhandled_total{{saga=\"order\"}} {handled}\n\
                 # HELP took_seconds Time.\n# TYPE took_seconds histogram\ntook_seconds_bucket{{le=\"0.005\"}} 1\n\
                 took_seconds_bucket{{le=\"+Inf\"}} {handled}\ntook_seconds_sum 0.5\ntook_seconds_count {handled}\n\
                 # HELP waiting Entries.\n# TYPE waiting gauge\nwaiting {waiting}\n"
            )
        };
        let mut sums = Sums::default();
        sums.add(&page(3, 4), true);
        sums.add(&page(5, 900), false);
        sums.add(&page(2, 7), true);
        sums.add(
            "# HELP handled_total Messages.\n# TYPE handled_total counter\nhandled_total{saga=\"stock\"} 1\n",
            false,
        );
        sums.add("", false);
        assert_eq!(
            sums.to_string(),
            "# HELP handled_total Messages.\n# TYPE handled_total counter\nhandled_total{saga=\"order\"} 10\n\
             handled_total{saga=\"stock\"} 1\n\
             # HELP took_seconds Time.\n# TYPE took_seconds histogram\ntook_seconds_bucket{le=\"0.005\"} 3\n\
             took_seconds_bucket{le=\"+Inf\"} 10\ntook_seconds_sum 1.5\ntook_seconds_count 10\n\
             # HELP waiting Entries.\n# TYPE waiting gauge\nwaiting 7\n"
        );
    }
}
