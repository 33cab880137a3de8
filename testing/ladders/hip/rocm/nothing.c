/* A library that is named by another, which uses nothing of it. */
