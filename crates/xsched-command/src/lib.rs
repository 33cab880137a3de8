//! Parts that all commands of xsched share: how a command ends ([`failure`]), the daemon that it asks ([`client`]), the user's folders
//! ([`folders`]) and name ([`users`]), and the library that it preloads ([`preload`]).

pub mod client;
pub mod failure;
pub mod folders;
pub mod preload;
pub mod users;
