module pithead/ssdlet

go 1.24
