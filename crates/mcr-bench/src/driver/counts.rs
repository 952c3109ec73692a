/// Requests for the watched kinds that a server has counted since it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// LISTs.
    pub lists: u64,
    /// WATCHes, those still open included.
    pub watches: u64,
    /// WATCHes that are open.
    pub open: u64,
}
