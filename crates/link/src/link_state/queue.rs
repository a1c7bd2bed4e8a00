// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes at one end and goes at the other, most often at once.
//!
//! ```text
//!   0        gone                    end        items.len()
//!   ├────────┼───────────────────────┼──────────┤
//!   │ blank  │ front …          back │ blank    │      emptied: gone and end are 0 again
//! ```
//!
//! `VecDeque` is the usual choice. It takes what is pushed as a value, through memory, and a processor that there reads at once what
//! was just written in several pieces waits until all of them are in the cache: a tenth of what receiving a short message takes. Here
//! a place is filled where it is.

/// See the module.
#[derive(Debug)]
pub(super) struct Queue<T> {
    items: Vec<T>,
    gone: usize,
    end: usize,
}

/// What can stand in a place that is not used.
pub(super) trait Blank {
    /// Nothing.
    fn blank() -> Self;

    /// Gives up what it holds.
    fn clear(&mut self);
}

impl<T: Blank> Queue<T> {
    pub(super) const fn new() -> Self {
        Self { items: Vec::new(), gone: 0, end: 0 }
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.end - self.gone
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.end == self.gone
    }

    /// A place behind the last, blank, to be filled.
    #[inline(always)]
    pub(super) fn push_back(&mut self) -> &mut T {
        if self.end == self.items.len() {
            self.grow();
        }
        self.end += 1;
        &mut self.items[self.end - 1]
    }

    #[cold]
    fn grow(&mut self) {
        self.items.push(T::blank());
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.items[..self.end].get(self.gone + index)
    }

    /// The first `count`, if there are so many; else all.
    pub(super) fn first(&self, count: usize) -> &[T] {
        &self.items[self.gone..self.end.min(self.gone + count)]
    }

    /// The front goes, if there is one.
    #[inline]
    pub(super) fn pop_front(&mut self) {
        if self.is_empty() {
            return;
        }
        self.items[self.gone].clear();
        self.gone += 1;
        if self.is_empty() {
            (self.gone, self.end) = (0, 0);
            if self.items.len() > PLACES_KEPT {
                self.items = Vec::new();
            }
        } else if self.gone >= BLANK_MIN && self.gone >= self.end / 2 {
            self.items.drain(..self.gone);
            self.end -= self.gone;
            self.gone = 0;
        }
    }
}

/// Fewer are not worth a move.
const BLANK_MIN: usize = 64;
/// Who has none keeps no more places than this for those that may come.
const PLACES_KEPT: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::rc::Rc;

    impl Blank for Option<Rc<u64>> {
        fn blank() -> Self {
            None
        }

        fn clear(&mut self) {
            *self = None;
        }
    }

    #[test]
    fn it_does_what_a_deque_does_and_keeps_nothing() {
        let (mut queue, mut model) = (Queue::<Option<Rc<u64>>>::new(), VecDeque::new());
        let mut random = 1_u64;
        for number in 0..100_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
            // Grows, shrinks and is empty in turns.
            if (random >> 33) % 100 < 35 + number / 1000 % 30 {
                let item = Rc::new(number);
                let place = queue.push_back();
                assert_eq!(*place, None);
                *place = Some(Rc::clone(&item));
                model.push_back(item);
            } else {
                queue.pop_front();
                if let Some(gone) = model.pop_front() {
                    assert_eq!(Rc::strong_count(&gone), 1, "still kept");
                }
            }
            assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(queue.front().cloned().flatten(), model.front().cloned());
            assert_eq!(queue.get(3).cloned().flatten(), model.get(3).cloned());
            assert_eq!(queue.first(5).len(), model.len().min(5));
        }
        while !queue.is_empty() {
            queue.pop_front();
        }
        assert!(queue.items.len() <= PLACES_KEPT);
    }

    #[test]
    fn a_queue_that_is_never_empty_does_not_grow() {
        let mut queue = Queue::<Option<Rc<u64>>>::new();
        for number in 0..10_000 {
            *queue.push_back() = Some(Rc::new(number));
            if queue.len() > 3 {
                queue.pop_front();
            }
            assert!(queue.items.len() <= 2 * BLANK_MIN + 8, "{}", queue.items.len());
        }
    }
}
