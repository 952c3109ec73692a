//! Doubly linked lists through the nodes of a slab, so that any node leaves in O(1).

use slab::Slab;

/// No node. A slab never has this many entries.
pub(super) const NIL: u32 = u32::MAX;

/// The neighbours of a node in one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl Links {
    pub(super) const NONE: Self = Self { prev: NIL, next: NIL };

    /// Updates the links after the nodes moved: node `i` is now at `to[i]`.
    pub(super) fn renumber(&mut self, to: &[u32]) {
        for link in [&mut self.prev, &mut self.next] {
            if *link != NIL {
                *link = to[*link as usize];
            }
        }
    }
}

/// One list. Each call names the slab of the nodes, and the links in a node that belong to this list.
#[derive(Clone, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: usize,
}

impl List {
    pub(super) const fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn head(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    pub(super) fn push_back<T>(&mut self, nodes: &mut Slab<T>, at: u32, links: fn(&mut T) -> &mut Links) {
        *links(&mut nodes[at as usize]) = Links {
            prev: self.tail,
            next: NIL,
        };
        match self.tail {
            NIL => self.head = at,
            tail => links(&mut nodes[tail as usize]).next = at,
        }
        self.tail = at;
        self.len += 1;
    }

    /// `at` must be a node of this list.
    pub(super) fn unlink<T>(&mut self, nodes: &mut Slab<T>, at: u32, links: fn(&mut T) -> &mut Links) {
        let Links { prev, next } = std::mem::replace(links(&mut nodes[at as usize]), Links::NONE);
        match prev {
            NIL => self.head = next,
            prev => links(&mut nodes[prev as usize]).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => links(&mut nodes[next as usize]).prev = prev,
        }
        self.len -= 1;
    }

    /// Updates the ends after the nodes moved: node `i` is now at `to[i]`.
    pub(super) fn renumber(&mut self, to: &[u32]) {
        for end in [&mut self.head, &mut self.tail] {
            if *end != NIL {
                *end = to[*end as usize];
            }
        }
    }
}
