//! Who a request proves to be.
