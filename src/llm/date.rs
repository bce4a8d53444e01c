//! Dates of HTTP headers and of listings.
//!
//! In: an HTTP date in any of its three forms (RFC 9110, 5.6.7), or seconds since 1970. Out: the other.

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Seconds since 1970 of an HTTP date; `None` when it is none.
///
/// All three forms hold a month name, a time with colons, and two numbers, the day before the year.
pub fn http_date(text: &str) -> Option<i64> {
    let (mut month, mut time) = (None, None);
    let mut numbers = Vec::new();
    for word in text.split([' ', ',', '-']).filter(|w| !w.is_empty()) {
        if word.contains(':') {
            time = time.or(Some(word));
        } else if word.bytes().all(|b| b.is_ascii_digit()) {
            numbers.push(word.parse::<i64>().ok().filter(|n| *n <= 9999)?);
        } else if let Some(at) = MONTHS.iter().position(|m| word.eq_ignore_ascii_case(m)) {
            month = month.or(i64::try_from(at + 1).ok());
        }
    }
    let [day, year] = numbers[..] else { return None };
    // Two digits are the obsolete form of 1994 (RFC 850).
    let year = if year < 70 {
        year + 2000
    } else if year < 100 {
        year + 1900
    } else {
        year
    };
    let clock: Vec<i64> = time?.split(':').map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let [hour, minute, second] = clock[..] else { return None };
    let valid =
        (1..=31).contains(&day) && (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    valid
        .then(|| days_from_civil(year, month.unwrap_or(1), day) * 86_400 + hour * 3600 + minute * 60 + second)
        .filter(|_| month.is_some())
}

/// `2031-01-01` of seconds since 1970, in UTC.
pub fn iso_date(unix_seconds: i64) -> String {
    let (year, month, day) = civil_from_days(unix_seconds.div_euclid(86_400));
    format!("{year:04}-{month:02}-{day:02}")
}

/// Days since 1970 of a day of the Gregorian calendar. Years are counted from March, so that the leap day is the last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected: `date -u -d '...' +%s` of GNU coreutils.
    #[test]
    fn all_three_forms() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(http_date(text), Some(784_111_777), "{text}");
        }
        assert_eq!(http_date("Wed, 01 Jan 2031 00:00:00 GMT"), Some(1_924_992_000));
        assert_eq!(http_date("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
    }

    #[test]
    fn what_is_no_date() {
        for text in [
            "",
            "soon",
            "120",
            "06 Nov 1994",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8h GMT",
            "1 2 3 Jan 0:0:0",
        ] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }

    #[test]
    fn iso_dates() {
        assert_eq!(iso_date(0), "1970-01-01");
        assert_eq!(iso_date(-1), "1969-12-31");
        assert_eq!(iso_date(1_709_251_199), "2024-02-29");
        for days in (-200_000..200_000).step_by(37) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }
}
