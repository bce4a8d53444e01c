//! The text form of an inspection, for a terminal.

use std::fmt;

use super::{Inspection, Lengths, percent};

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {} characters, median {}, mean {:.0}", self.min, self.max, self.median, self.mean)
    }
}

/// One line: a label, padded, and what it is.
fn line(f: &mut fmt::Formatter<'_>, label: &str, what: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{label:<18}{what}")
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "dataset", format_args!("{} ({}) in {}", self.name, self.kind.as_str(), self.folder))?;
        line(f, "licence", self.licence.as_deref().unwrap_or("not stated"))?;
        line(f, "fingerprint", &self.fingerprint)?;
        let p = &self.passages;
        match p.count {
            0 => line(f, "passages", "none")?,
            n => line(f, "passages", format_args!("{n}, {} with a title, {}", p.titled, p.characters))?,
        }
        self.questions(f)?;
        self.beside(f)?;
        line(f, "index", &self.readiness)?;
        if self.findings.is_empty() {
            return write!(f, "{:<18}none", "findings");
        }
        write!(f, "findings")?;
        self.findings.iter().try_for_each(|finding| write!(f, "\n  {}: {}", finding.code, finding.text))
    }
}

impl Inspection {
    fn questions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let q = &self.questions;
        line(f, "questions", format_args!("{}, {}", q.count, q.characters))?;
        if !q.categories.is_empty() {
            let names: Vec<String> = q.categories.iter().map(|(name, n)| format!("{name} {n}")).collect();
            line(f, "categories", names.join(", "))?;
        }
        let a = &q.answers;
        line(
            f,
            "answers",
            format_args!(
                "{}; {} empty, {} yes or no, {} with aliases",
                a.characters, a.empty, a.yes_no, a.with_aliases
            ),
        )?;
        let sizes: Vec<String> = q.gold_sizes.iter().map(|(size, n)| format!("{n} with {size}")).collect();
        let sizes = if sizes.is_empty() { String::new() } else { format!(": {}", sizes.join(", ")) };
        line(
            f,
            "gold passages",
            format_args!(
                "known for {} of {} questions ({}){sizes}",
                q.with_gold,
                q.count,
                percent(q.with_gold, q.count)
            ),
        )?;
        if let Some(g) = &q.gold_pairs {
            line(
                f,
                "gold neighbours",
                format_args!(
                    "{} of {} pairs ({}) are corpus neighbours, by chance {:.2} %",
                    g.neighbours,
                    g.pairs,
                    percent(g.neighbours, g.pairs),
                    100.0 * g.by_chance
                ),
            )?;
        }
        if let Some(c) = &q.clusters {
            line(
                f,
                "clusters",
                format_args!(
                    "{} by shared hops, coverage {:.1} %, mean size {:.1}, largest {}",
                    c.clusters,
                    100.0 * c.coverage,
                    c.mean_size,
                    c.max_size
                ),
            )?;
        }
        Ok(())
    }

    fn beside(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.passage_prefix {
            "unknown" => "unknown: neither annotations nor passage vectors tell",
            known => known,
        };
        line(f, "passage prefix", prefix)?;
        if let Some(a) = &self.annotations {
            line(
                f,
                "annotations",
                format_args!(
                    "{} mentions of {} entities in {} sentences, {} passages without",
                    a.mentions, a.entities, a.sentences, a.passages_without
                ),
            )?;
        }
        if let Some(q) = &self.question_entities {
            line(f, "question entities", format_args!("{}, {} questions without", q.entities, q.questions_without))?;
        }
        let mut encoders: Vec<String> =
            self.vectors.iter().map(|v| format!("{}, {} numbers", v.encoder, v.dim)).collect();
        encoders.dedup();
        if let [one] = encoders.as_slice() {
            line(f, "encoder", one)?;
        }
        for (v, label) in self.vectors.iter().zip(std::iter::once("vectors").chain(std::iter::repeat(""))) {
            let whose =
                if encoders.len() > 1 { format!(" of {}, {} numbers", v.encoder, v.dim) } else { String::new() };
            let needed = match v.needed {
                Some(needed) => format!("for {} of {needed} texts", needed - v.missing),
                None => format!("{} rows, how many are needed is unknown", v.rows),
            };
            let cut = match (v.truncated_at_tokens, v.cut_estimated) {
                _ if v.cut.is_some() => format!("{} cut", v.cut.unwrap_or_default()),
                (Some(limit), Some(0)) => format!("none over {limit} tokens (estimated)"),
                (Some(limit), Some(cut)) => format!("about {cut} cut at {limit} tokens (estimated)"),
                _ => "where texts were cut is not stated".to_owned(),
            };
            line(f, label, format_args!("{}{whose}: {needed}, {cut}", v.kind.as_str()))?;
        }
        Ok(())
    }
}
