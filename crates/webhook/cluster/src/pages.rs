//! The pager: reads a List page by page.
//!
//! A page that is longer than Durward reads is requested again with a tenth of the objects, down to a single one. A List whose
//! continue token repeats is garbage, since it would never end.

use std::time::{Duration, Instant};

use admission::Cause;

use crate::fleet::{Cluster, ListQuery, Object, Page};
use crate::{Reader, cause};

/// Objects in a page, as many as client-go requests.
pub const PAGE_LIMIT: u32 = 500;

/// The pages of one List.
pub struct Pages<'a> {
    reader: &'a dyn Reader,
    of: &'a Cluster,
    query: ListQuery<'a>,
    deadline: Deadline,
    cursor: Cursor,
}

enum Deadline {
    /// For the whole List.
    At(Instant),
    /// For each page.
    Each(Duration),
}

/// The position within a List.
#[derive(Debug)]
pub(crate) struct Cursor {
    limit: u32,
    token: Option<String>,
    pages_read: usize,
    too_long: Option<Cause>,
    is_done: bool,
}

impl<'a> Pages<'a> {
    /// Reads the pages of a List, all of them before `deadline`.
    pub fn new(reader: &'a dyn Reader, of: &'a Cluster, query: ListQuery<'a>, deadline: Instant) -> Self {
        Self { reader, of, query, deadline: Deadline::At(deadline), cursor: Cursor::new(query.limit) }
    }

    /// Reads the pages of a List of any length, each of them within `timeout`.
    pub fn with_page_timeout(
        reader: &'a dyn Reader,
        of: &'a Cluster,
        query: ListQuery<'a>,
        timeout: Duration,
    ) -> Self {
        Self { reader, of, query, deadline: Deadline::Each(timeout), cursor: Cursor::new(query.limit) }
    }

    /// Returns the next page, or `None` after the last one. [`Page::next`] tells whether more pages follow.
    pub async fn next(&mut self) -> Result<Option<Page>, Cause> {
        while !self.cursor.is_done {
            let query = self.cursor.query(self.query);
            let deadline = match self.deadline {
                Deadline::At(deadline) => deadline,
                Deadline::Each(timeout) => Instant::now() + timeout,
            };
            match self.reader.list(self.of, query, deadline).await {
                Ok(page) => {
                    self.cursor.advance(page.next.as_deref())?;
                    return Ok(Some(page));
                }
                Err(why) if self.cursor.shrink(&why) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(None)
    }

    /// The number of pages that were read.
    pub fn pages_read(&self) -> usize {
        self.cursor.pages_read
    }

    /// The reason why the current page is requested with fewer objects than the page before, if it is.
    pub fn too_long(&self) -> Option<&Cause> {
        self.cursor.too_long.as_ref()
    }
}

/// Reads a whole List, with a timeout for each page. For commands: a List of any length is read to its end.
pub async fn list_pages(
    reader: &dyn Reader,
    of: &Cluster,
    query: ListQuery<'_>,
    page_timeout: Duration,
) -> Result<Vec<Object>, Cause> {
    let mut pages = Pages::with_page_timeout(reader, of, query, page_timeout);
    let mut objects = Vec::new();
    while let Some(page) = pages.next().await? {
        objects.extend(page.objects);
    }
    Ok(objects)
}

impl Cursor {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, token: None, pages_read: 0, too_long: None, is_done: false }
    }

    /// The query for the page at this position.
    pub(crate) fn query<'q>(&'q self, query: ListQuery<'q>) -> ListQuery<'q> {
        ListQuery { limit: self.limit, continue_token: self.token.as_deref(), ..query }
    }

    /// Advances after a page. Fails if the page names itself as the next one. Only the last page ends the List, so a caller
    /// that continues after a failure gets the failure again and never an end.
    pub(crate) fn advance(&mut self, next: Option<&str>) -> Result<(), Cause> {
        if next.is_some() && next == self.token.as_deref() {
            return Err(Cause::new(
                cause::GARBAGE,
                "the List does not end: a page names itself as the next one",
            ));
        }
        self.pages_read += 1;
        self.too_long = None;
        self.is_done = next.is_none();
        self.token = next.map(str::to_owned);
        Ok(())
    }

    /// Returns whether the page is requested again, with fewer objects, because it was too long.
    pub(crate) fn shrink(&mut self, why: &Cause) -> bool {
        let shrinks = why.code == cause::TOO_LONG && self.limit > 1;
        if shrinks {
            self.limit = (self.limit / 10).max(1);
            self.too_long = Some(why.clone());
        }
        shrinks
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;

    use admission::BoxFuture;

    use super::*;
    use crate::fleet::PageResult;
    use crate::{Address, MetadataResult, Offline, Resource};

    /// Answers each request by a function of limit and continue token, and records them.
    struct Fake<F>(F, Mutex<Vec<(u32, Option<String>)>>);

    impl<F: Fn(u32, Option<&str>) -> PageResult + Send + Sync> Reader for Fake<F> {
        fn get<'a>(&'a self, address: Address<'a>, deadline: Instant) -> BoxFuture<'a, MetadataResult> {
            Offline.get(address, deadline)
        }

        fn list<'a>(&'a self, _: &'a Cluster, query: ListQuery<'a>, _: Instant) -> BoxFuture<'a, PageResult> {
            self.1.lock().unwrap().push((query.limit, query.continue_token.map(str::to_owned)));
            Box::pin(ready((self.0)(query.limit, query.continue_token)))
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the answer of a fake reader")]
    fn page(name: &str, next: Option<&str>) -> PageResult {
        let object = Object { name: name.to_owned(), ..Object::default() };
        Ok(Page { objects: vec![object], next: next.map(str::to_owned) })
    }

    async fn names<F: Fn(u32, Option<&str>) -> PageResult + Send + Sync>(
        answer: F,
    ) -> (Result<Vec<String>, &'static str>, Vec<(u32, Option<String>)>) {
        let fake = Fake(answer, Mutex::default());
        let query = ListQuery::new(&Resource::NAMESPACES);
        let read = list_pages(&fake, &Cluster::Local, query, Duration::from_secs(1)).await;
        let names = read.map(|objects| objects.into_iter().map(|object| object.name).collect());
        (names.map_err(|why| why.code), fake.1.into_inner().unwrap())
    }

    #[tokio::test]
    async fn reads_all_pages_in_order() {
        let (names, requests) = names(|_, token| match token {
            None => page("a", Some("1")),
            Some("1") => page("b", Some("2")),
            Some(_) => page("c", None),
        })
        .await;
        assert_eq!(names.unwrap(), ["a", "b", "c"]);
        assert_eq!(requests, [(500, None), (500, Some("1".into())), (500, Some("2".into()))]);
    }

    #[tokio::test]
    async fn a_failure_is_not_the_end_of_the_list() {
        let fake = Fake(|_, _: Option<&str>| Err(Cause::new(cause::TIMEOUT, "no answer")), Mutex::default());
        let query = ListQuery::new(&Resource::NAMESPACES);
        let mut pages = Pages::with_page_timeout(&fake, &Cluster::Local, query, Duration::from_secs(1));
        for _ in 0..2 {
            assert_eq!(pages.next().await.unwrap_err().code, cause::TIMEOUT);
        }
    }

    #[tokio::test]
    async fn requests_smaller_pages_while_a_page_is_too_long() {
        let too_long = || Err(Cause::new(cause::TOO_LONG, "longer than 8 MiB"));
        let (read, requests) = names(|limit, token| match (limit, token) {
            (500, _) => too_long(),
            (_, None) => page("a", Some("1")),
            (50, _) => too_long(),
            _ => page("b", None),
        })
        .await;
        assert_eq!(read.unwrap(), ["a", "b"]);
        assert_eq!(requests.iter().map(|(limit, _)| *limit).collect::<Vec<_>>(), [500, 50, 50, 5]);
        let (read, requests) = names(|_, _| too_long()).await;
        assert_eq!(read.unwrap_err(), cause::TOO_LONG);
        assert_eq!(requests.iter().map(|(limit, _)| *limit).collect::<Vec<_>>(), [500, 50, 5, 1]);
    }

    #[tokio::test]
    async fn fails_at_a_repeated_continue_token_and_at_any_other_failure() {
        let (read, requests) = names(|_, _| page("a", Some("1"))).await;
        assert_eq!((read.unwrap_err(), requests.len()), (cause::GARBAGE, 2));
        let (read, requests) = names(|_, token| match token {
            None => page("a", Some("1")),
            Some(_) => Err(Cause::new(cause::BUSY, "the page expired")),
        })
        .await;
        assert_eq!((read.unwrap_err(), requests.len()), (cause::BUSY, 2));
    }
}
