//! What is where in etcd.

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About<'k> {
    Leader,
    Router(&'k str),
    Worker(&'k str),
    Record(&'k str),
    Other,
}

impl Keys {
    pub(crate) fn under(prefix: &str) -> Self {
        Self { prefix: format!("{prefix}/") }
    }

    pub(crate) fn all(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    pub(crate) fn router(&self, name: &str) -> String {
        format!("{}routers/{name}", self.prefix)
    }

    pub(crate) fn worker(&self, name: &str) -> String {
        format!("{}workers/{name}", self.prefix)
    }

    pub(crate) fn record(&self, key: &str) -> String {
        format!("{}records/{key}", self.prefix)
    }

    pub(crate) fn about<'k>(&self, key: &'k str) -> About<'k> {
        let Some(key) = key.strip_prefix(&self.prefix) else { return About::Other };
        match key.split_once('/') {
            None if key == "leader" => About::Leader,
            Some(("routers", name)) => About::Router(name),
            Some(("workers", name)) => About::Worker(name),
            Some(("records", record)) => About::Record(record),
            Some(_) | None => About::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_it_is_about() {
        let keys = Keys::under("/sluice");
        assert_eq!(keys.about(&keys.leader()), About::Leader);
        assert_eq!(keys.about(&keys.router("10.0.0.1:8002")), About::Router("10.0.0.1:8002"));
        assert_eq!(keys.about(&keys.worker("gpu-7")), About::Worker("gpu-7"));
        assert_eq!(keys.about(&keys.record("job/12")), About::Record("job/12"));
        assert_eq!(keys.about("/sluice/else"), About::Other);
        assert_eq!(keys.about("/sluices/leader"), About::Other);
    }
}
