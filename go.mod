module github.com/rowlease/rowlease

go 1.25.0
