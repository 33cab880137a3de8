//! Parts that all commands of xsched share: how a command ends ([`failure`]), the daemon that it asks ([`client`]), the user's folders
//! ([`folders`]) and name ([`users`]), the library that it preloads ([`preload`]), the progress of one that takes long ([`progress`]), and the
//! width of its output ([`width`]).

pub mod client;
pub mod failure;
pub mod folders;
pub mod preload;
pub mod progress;
pub mod users;
pub mod width;
